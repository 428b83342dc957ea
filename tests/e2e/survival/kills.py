"""One transfer by a fleet of its own, with kill -9 of its client and of gateways in every role.

When a process is killed depends on the bytes PUT so far, at the proxy before the store: no word of
the project's own times a kill. The points are random from the seed; the same seed kills the
same roles in the same order at the same amounts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.faults.http_proxy import FaultProxy

from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, Home

#: What is under way when a process dies is a small part of the data, and silence is noticed.
GATEWAY_SETTINGS: Final = {"ack_deadline_s": 15.0, "assembly_mib": 32, "store_threads": 8}
ROLES: Final = ("lead", "source", "relay", "sink", "client")
#: Kills fall into this part of the data, so that something is left to resume.
_FIRST_AT, _LAST_AT = 0.06, 0.66
_CLIENT: Final = "from tests.e2e.survival.client import main; main()"
_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY")


@dataclass(frozen=True, slots=True)
class KillPoint:
    """The role to kill after this many PUT bytes, and the delay after that."""

    role: str
    put_bytes: int
    delay_s: float


def kill_points(seed: int, total_bytes: int, roles: Sequence[str]) -> list[KillPoint]:
    """One of each role, in random order, at random amounts."""
    dice = random.Random(f"kills/{seed}")
    amounts = sorted(dice.uniform(_FIRST_AT, _LAST_AT) * total_bytes for _ in roles)
    order = dice.sample(roles, len(roles))
    return [
        KillPoint(role, int(amount), dice.uniform(0.0, 0.4))
        for role, amount in zip(order, amounts, strict=True)
    ]


@dataclass
class KilledTransfer:
    """A transfer that is disturbed, and what its client has said so far.

    Attributes:
        home: of client and gateways.
        document: what the client reads, but for the fleet.
        points: kills to come.
        dice: which of several gateways is hit.
        least_epoch: of the status after which the next kill may come: somebody leads again.
    """

    home: Home
    document: Mapping[str, Any]
    proxy: FaultProxy
    points: deque[KillPoint]
    dice: random.Random
    fleet: Fleet
    lead: str = ""
    least_epoch: int = 1
    result: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Raises AssertionError where the client ends without a result, or before all kills."""
        while not self.result:
            given = {**self.document, "fleet": self.fleet.to_dict()}
            with self.home.orchestrator(_CLIENT, given) as lines:
                assert any(map(self._is_over, map(json.loads, lines))), "the client ended"
        assert not self.points, f"it ended before {self.points}"

    def _is_over(self, said: Mapping[str, Any]) -> bool:
        """Take what the client says, kill who is due; whether the client has ended, or has to."""
        if "result" in said:
            self.result = said["result"]
        elif "fleet" in said:
            self.fleet, self.lead = Fleet.from_dict(said["fleet"]), said["lead"]
        elif said["epoch"] >= self.least_epoch and self._is_due():
            point = self.points.popleft()
            time.sleep(point.delay_s)
            print(f"{point.role} is killed at {self.proxy.log.put_bytes} bytes, {said}")
            self.least_epoch = said["epoch"] + (point.role == "lead")
            if point.role == "client":
                return True
            handle = self.dice.choice(list(self._those(point.role)))
            os.kill(int(handle.details["pid"]), signal.SIGKILL)
        return bool(self.result)

    def _is_due(self) -> bool:
        return bool(self.points) and self.proxy.log.put_bytes >= self.points[0].put_bytes

    def _those(self, role: str) -> Iterator[Any]:
        """The living gateways of a role."""
        fleet, alive = self.fleet, set(self.home.gateways())
        sources = {handle.node for handle in fleet.sources}
        sinks = {handle.node for handle in fleet.sinks}
        relays = {handle.node for handle in fleet.gateways} - sources - sinks
        nodes = {
            "lead": {self.lead}, "source": sources - {self.lead}, "relay": relays, "sink": sinks
        }[role]  # fmt: skip
        for handle in fleet.gateways:
            if handle.node in nodes and int(handle.details["pid"]) in alive:
                yield handle


def run(
    kit: ClientKit,
    words: tuple[str, str, str],
    job: TransferJob,
    plan: TransferPlan,
    points: Sequence[KillPoint],
    proxy: FaultProxy,
    scratch: Path,
) -> Mapping[str, Any]:
    """Transfer with kills, then tear down; the result as a document.

    Args:
        words: of the run's identity.
        proxy: before the destination.
        scratch: the client's temporary files, of which none may be left.
    """
    scratch.mkdir()
    provisioner = {"max_instances_per_region": 3, "gateway_settings": GATEWAY_SETTINGS}
    client = kit.client(identity=RunIdentity(*words), provisioner=kit.provisioner(**provisioner))
    keys = {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
    document = {
        "run_root": str(kit.home.run_root),
        "identity": words,
        "secret": kit.secret.value.decode(),
        "provisioner": provisioner,
        "job": job.to_dict(),
    }
    transfer = KilledTransfer(
        replace(kit.home, more={**keys, "TMPDIR": str(scratch)}),
        document,
        proxy,
        deque(points),
        random.Random(f"who/{words}"),
        client.provision(plan),
    )
    try:
        transfer.run()
    finally:
        tails = client.teardown(transfer.fleet).log_tails
        print(*(f"{node}: {tail}" for node, tail in tails.items()), sep="\n")
    assert list(scratch.iterdir()) == []
    return transfer.result
