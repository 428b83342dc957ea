"""A survival run: a fleet, its client and its store, and who is killed when.

Progress is measured in bytes PUT, at the proxy before the store, so that no word of the
project's own is needed to time a kill; that a transfer goes on after one is read from its
status. Kill points are random from the seed; the same seed kills the same roles in the same
order at the same amounts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.http_proxy import Exchange

from skyplane_orchestration.model.fleet import Fleet, GatewayHandle

REPOSITORY: Final = Path(__file__).resolve().parents[3]

#: A hang guard; nothing is asserted about how long anything takes.
PATIENCE_S: Final = 600.0

ROLES: Final = ("lead", "source", "relay", "sink", "client")

#: Kills fall into this part of the data, so that something is left to resume.
_FIRST_AT, _LAST_AT = 0.06, 0.66


@dataclass(frozen=True, slots=True)
class KillPoint:
    """The role to kill after this many PUT bytes, and the delay after that."""

    role: str
    put_bytes: int
    delay_s: float


def kill_points(seed: int, total_bytes: int, roles: Sequence[str] = ROLES) -> list[KillPoint]:
    """One of each role, in random order, at random amounts."""
    dice = random.Random(f"kills/{seed}")
    amounts = sorted(dice.uniform(_FIRST_AT, _LAST_AT) * total_bytes for _ in roles)
    order = dice.sample(roles, len(roles))
    return [
        KillPoint(role, int(amount), dice.uniform(0.0, 0.4))
        for role, amount in zip(order, amounts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Killed:
    """A kill that has happened.

    Attributes:
        at_s: since the transfer was submitted.
        put_bytes: at the proxy, at that moment.
        copied: objects that the status named at that moment.
        epoch: of the lead, at that moment.
        again_s: until the status told of progress again.
    """

    role: str
    node: str
    pid: int
    at_s: float
    put_bytes: int
    copied: int
    epoch: int
    again_s: float

    def __str__(self) -> str:
        return (
            f"  {self.at_s:6.1f} s  {self.role:6}  pid {self.pid:<7} {self.node:22} "
            f"{self.put_bytes / 1e6:8.1f} MB put, {self.copied:4d} objects copied, epoch "
            f"{self.epoch}; goes on after {self.again_s:.1f} s"
        )


class Proxy:
    """The counting proxy before a store, as a process.

    Args:
        put_delay_s: how long every body waits: a store that is far away, so that a transfer
            takes its time without taking this machine's.
    """

    def __init__(self, upstream: str, folder: Path, *, put_delay_s: float = 0.0) -> None:
        rules = folder / "proxy-rules.json"
        bodies = ({"method": "PUT"}, {"method": "POST", "target": "^/upload/"})
        slow = {"action": "delay", "times": 0, "delay_s": put_delay_s}
        rules.write_text(json.dumps([{**slow, **body} for body in bodies]))
        with (folder / "proxy.log").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.http_proxy", upstream, "--rules", str(rules)],
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["url"]

    def ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/-proxy/{what}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    @property
    def put_bytes(self) -> int:
        return int(self.ask("counts")["put_bytes"])

    @property
    def exchanges(self) -> list[Exchange]:
        return [Exchange(**row) for row in self.ask("exchanges")]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass
class _Seen:
    """The clients' output so far."""

    epoch: int = 0
    lead: str = ""
    fleet: Mapping[str, Any] = field(default_factory=dict)
    epochs: list[tuple[int, str]] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    #: Processes that were started, and statuses that the newest of them told.
    clients: int = 0
    told: int = 0


class ClientProcess:
    """The orchestrator's process, which is started again after a kill.

    Args:
        document: what `driver` reads.
        environment: its variables.
        log: file of its stderr.
    """

    def __init__(
        self, document: Mapping[str, Any], environment: Mapping[str, str], log: Path
    ) -> None:
        self._document = dict(document)
        self._environment = dict(environment)
        self._log = log
        self._news = threading.Condition()
        self.seen = _Seen(fleet=self._document["fleet"])
        self._process: subprocess.Popen[str] | None = None
        self._is_over = True

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def fleet(self) -> Fleet:
        return Fleet.from_dict(self.seen.fleet)

    def start(self) -> None:
        with self._news:
            self.seen.clients, self.seen.told = self.seen.clients + 1, 0
            self._is_over = False
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.survival.driver"],
                cwd=REPOSITORY,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**self._document, "fleet": self.seen.fleet}))
        self._process.stdin.close()
        threading.Thread(
            target=self._follow, args=(self._process, self.seen.clients), daemon=True
        ).start()

    def _follow(self, process: subprocess.Popen[str], which: int) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                # A killed process may leave half a line.
                with contextlib.suppress(json.JSONDecodeError):
                    self._take(json.loads(line), which)
        with self._news:
            self._is_over = self._is_over or which == self.seen.clients
            self._news.notify_all()

    def _take(self, said: Mapping[str, Any], which: int) -> None:
        with self._news:
            seen = self.seen
            if which != seen.clients:
                return  # The last words of one that was killed.
            if "submitted" in said:
                row = said["submitted"]
                seen.epoch, seen.lead, seen.fleet = row["epoch"], row["lead"], row["fleet"]
                if (seen.epoch, seen.lead) not in seen.epochs:
                    seen.epochs.append((seen.epoch, seen.lead))
            elif "status" in said:
                seen.status = said["status"]
                seen.told += 1
            else:
                seen.result = said["result"]
            self._news.notify_all()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        """The last process has printed its result."""
        return self._is_over

    def wait_for_progress(self, least_epoch: int) -> float:
        """Seconds until the current client reports progress.

        Args:
            least_epoch: what an older one delivers is none.
        """
        began_s, before = time.monotonic(), self.seen.told
        base: Mapping[str, Any] | None = None
        with self._news:
            while True:
                now, result = self.seen.status, self.seen.result
                if self.seen.told > before and now["epoch"] >= least_epoch:
                    base = base or now
                    if _is_further(now, base):
                        return time.monotonic() - began_s
                if result is not None and result.get("state") == "succeeded":
                    return time.monotonic() - began_s  # It went on to its end.
                if result is not None or self.has_ended:
                    raise AssertionError(f"it did not go on: {result}")
                if time.monotonic() - began_s > PATIENCE_S:
                    raise AssertionError(f"no progress within {PATIENCE_S:g} s, after {base}")
                self._news.wait(1.0)

    def wait_for_end(self) -> Mapping[str, Any]:
        """The result that it printed, as a document."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_S)
        deadline_s = time.monotonic() + 10
        with self._news:
            while self.seen.result is None and time.monotonic() < deadline_s:
                self._news.wait(1.0)
            assert self.seen.result is not None, f"no result, exit code {code}"
            return self.seen.result


def _is_further(now: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    if now["epoch"] > base["epoch"]:
        return bool(now["delivered_bytes"])
    return bool(now["delivered_bytes"] > base["delivered_bytes"])


class Killer:
    """Kills one process of each role and checks that the transfer continues.

    Args:
        client: to be killed as well, and to be asked how far it is.
        proxy: tells when.
        alive: process ids of the gateways that run.
        dice: which of several is hit.
    """

    def __init__(
        self,
        client: ClientProcess,
        proxy: Proxy,
        alive: Callable[[], list[int]],
        dice: random.Random,
    ) -> None:
        self._client, self._proxy, self._alive, self._dice = client, proxy, alive, dice
        self._began_s = time.monotonic()
        self.done: list[Killed] = []

    def kill(self, point: KillPoint) -> None:
        """Wait for the point, kill, wait until the transfer continues.

        Raises AssertionError when the transfer does not, or has ended before.
        """
        while (put_bytes := self._proxy.put_bytes) < point.put_bytes:
            assert not self._client.has_ended, f"it ended before {point}: {self._client.seen}"
            time.sleep(0.1)
        time.sleep(point.delay_s)
        copied, epoch = self._client.seen.status.get("copied", 0), self._client.seen.epoch
        at_s = time.monotonic() - self._began_s
        node, pid = self._kill(point.role)
        again_s = self._client.wait_for_progress(epoch + (point.role == "lead"))
        self.done.append(
            Killed(
                role=point.role,
                node=node,
                pid=pid,
                at_s=at_s,
                put_bytes=put_bytes,
                copied=copied,
                epoch=epoch,
                again_s=again_s,
            )
        )

    def _kill(self, role: str) -> tuple[str, int]:
        if role == "client":
            pid = self._client.pid
            self._client.kill()
            self._client.start()
            return "", pid
        handle = self._dice.choice(self._those(role))
        pid = int(handle.details["pid"])
        os.kill(pid, signal.SIGKILL)
        return handle.node, pid

    def _those(self, role: str) -> list[GatewayHandle]:
        """The living gateways of a role."""
        fleet, lead = self._client.fleet, self._client.seen.lead
        if role == "lead":
            return [fleet.gateway(lead)]
        ends = {handle.node for handle in (*fleet.sources, *fleet.sinks)}
        rows = {
            "source": [handle for handle in fleet.sources if handle.node != lead],
            "sink": list(fleet.sinks),
            "relay": [handle for handle in fleet.gateways if handle.node not in ends],
        }[role]
        alive = set(self._alive())
        return [handle for handle in rows if int(handle.details["pid"]) in alive]
