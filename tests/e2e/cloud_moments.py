"""Seeded moments of a copy on instances of a strict cloud, at which its process gets a signal.

A moment of the start or of the teardown is a call of the cloud's API: the process gets the signal
while the fake handles that call. A moment of the transfer is a part: it is held before the
destination, with all that follow, when the process gets the signal. So a moment is the same on
each machine, and a copy that ends before its moment fails the test.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cloud_sites import SITES, CloudSite
from tests.e2e.held_store import MIB, refuse, take, wait_for
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from strict_clouds.world import Machine, World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

#: Cloud and phase of each moment.
PLACES: Final = (
    *((cloud, "provision") for cloud in ("aws", "azure", "gcp", "aws")),
    *((cloud, "transfer") for cloud in ("aws", "azure", "gcp")),
    *((cloud, "teardown") for cloud in ("aws", "azure", "gcp")),
)
#: Calls of the API before both gateways are up, and from the first delete on: fewer than a copy
#: makes here.
PROVISION_CALLS: Final = {"aws": 40, "azure": 40, "gcp": 30}
TEARDOWN_CALLS: Final = {"aws": 6, "azure": 6, "gcp": 6}

#: Three parts each.
LARGE: Final = {f"large{number}": 11 * MIB for number in range(2)}
PARTS: Final = 6
_DELETE: Final = re.compile(r"Terminate|[Dd]elete")


@dataclass(frozen=True)
class Moment:
    """A moment of a copy.

    Args:
        cloud: its instances run there.
        phase: `provision`, `transfer` or `teardown`.
        number: of the call of the API, of the part, or of the call from the first delete on;
            from 1.
    """

    cloud: str
    phase: str
    number: int

    def __str__(self) -> str:
        return f"{self.cloud}-{self.phase}-{self.number}"


def moments(seed: int) -> list[Moment]:
    """One for each of `PLACES`; the same for the same seed."""
    rng = random.Random(seed)
    most = {"provision": PROVISION_CALLS, "transfer": {}, "teardown": TEARDOWN_CALLS}
    return [
        Moment(cloud, phase, rng.randint(1, most[phase].get(cloud, PARTS)))
        for cloud, phase in PLACES
    ]


class _Tripwire(list[Any]):
    """The calls of a fake, which acts once, while it handles one of them."""

    def __init__(self, is_due: Callable[[Any], bool], act: Callable[[], None]) -> None:
        super().__init__()
        self._is_due, self._act = is_due, act
        self.done = False

    def append(self, request: Any) -> None:
        super().append(request)
        if not self.done and self._is_due(request):
            self.done = True
            self._act()


@dataclass
class MomentCopy:
    """A copy between two regions, and the command that gets the signal."""

    kit: ClientKit
    world: World
    site: CloudSite
    servers: tuple[S3Server, S3Server]
    proxy: FaultProxy
    clouds_file: Path
    bucket: str
    lease_s: float

    def __post_init__(self) -> None:
        self.site.write_clouds_file(self.clouds_file)
        for server in self.servers:
            server.make_bucket(self.bucket)
        sizes = {**LARGE, **{f"small{number}": 100 for number in range(4)}}
        objects = {key: os.urandom(size) for key, size in sizes.items()}
        self.servers[0].fill(self.bucket, "p/", objects)

    # -- commands

    def start(self) -> subprocess.Popen[str]:
        """The copy; each start is a worker of the same run."""
        urls = [f"s3://{self.bucket}/p/", f"s3://{self.bucket}/q/"]
        ends = []
        endpoints = self.servers[0].endpoint, self.proxy.url
        for side, region, endpoint in zip(
            ("src", "dst"), self.site.regions, endpoints, strict=True
        ):
            ends += [f"--{side}-region", region, f"--{side}-endpoint", endpoint]
        options = ["-r", "--gateways", "always", "--chunk-mib", "5", "--instance-limit", "1"]
        leases = ["--lease-s", f"{self.lease_s:g}", "--run", "nightly", "--json"]
        return self._command("cp", *urls, *ends, *options, *leases)

    def signalled(self, moment: Moment, number: signal.Signals) -> tuple[int, str, str]:
        """Return code, output and errors of a copy that has got the signal at the moment."""
        command: list[subprocess.Popen[str]] = []
        at: dict[str, Any] = {}

        def act() -> None:
            at["calls"], at["data"] = len(self.site.fake.calls), self._data_requests()
            command[0].send_signal(number)

        if moment.phase == "transfer":
            rule = Rule("hold", "PUT", "partNumber", nth=moment.number, times=0)
            self.proxy.schedule.add(rule)
        else:
            self.site.fake.calls = _Tripwire(self._due(moment), act)
        command.append(self.start())
        with command[0] as process:
            if moment.phase == "transfer":
                wait_for(
                    lambda: self._is_held() or process.poll() is not None, "a part that is held"
                )
                assert process.poll() is None, process.communicate()
                act()
                if number == signal.SIGINT:
                    refuse(self.proxy)
            output, errors = process.communicate(timeout=180)
        print(f"{moment}: {at}, of {len(self.site.fake.calls)} calls: {process.returncode}")
        assert at, f"the copy ended before {moment}: {errors}"
        assert bool(at["data"]) is (moment.phase != "provision")
        return process.returncode, output, errors

    def _due(self, moment: Moment) -> Callable[[Any], bool]:
        counted = 0

        def is_due(request: Any) -> bool:
            nonlocal counted
            is_counted = moment.phase == "provision" or counted > 0
            if is_counted or _DELETE.search(self.site.name_of(request)):
                counted += 1
            return counted == moment.number

        return is_due

    def _data_requests(self) -> int:
        return sum("partNumber" in each.target for each in list(self.proxy.log.exchanges))

    def _is_held(self) -> bool:
        return any(each.fault == "hold" for each in list(self.proxy.log.exchanges))

    def finish(self) -> dict[str, Any]:
        """The report of the same run, once more."""
        take(self.proxy)
        with self.start() as command:
            output, errors = command.communicate(timeout=180)
        assert command.returncode == 0, errors
        report: dict[str, Any] = json.loads(output)
        return report

    def sweep(self) -> None:
        """As a schedule does, at once for the fleet, and a day later for the destination."""
        with self._command("sweep", "--older-than-s", "0", "--json") as command:
            output, errors = command.communicate(timeout=120)
        assert command.returncode == 0, output + errors
        clock = Clock(wall=lambda: time.time() + 2 * RESUME_TTL_S)
        server = self.servers[1]
        place = Location(f"s3://{self.bucket}/", server.region, server.endpoint)
        report = self.kit.client("janitor", clock=clock).sweep(
            destinations=[place], orphaned_uploads=True
        )
        assert report.left == ()

    def _command(self, *words: str) -> subprocess.Popen[str]:
        choice = ["--provisioner", "cloud", "--clouds", str(self.clouds_file)]
        choice += ["--deployment", "tests"]
        return subprocess.Popen(
            [sys.executable, "-m", "skyplane_orchestration.cli", *words, *choice],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.kit.home.environment,
        )

    # -- what is there

    def wait_for_the_end_of_all_machines(self) -> None:
        wait_for(lambda: not self.running(), "the end of all leases")

    def running(self) -> list[Machine]:
        """Machines of instances."""
        return [machine for machine in self.world.machines if machine.is_running]

    def require_nothing_left(self) -> None:
        """No resource, machine, upload or journal; an object is whole or not there."""
        assert self.site.fake.leftovers() == {}
        assert self.running() == []
        destination = self.servers[1]
        assert destination.open_uploads(self.bucket) == []
        found = destination.objects(self.bucket)
        sent = self.servers[0].objects(self.bucket, "p/")
        assert found.items() <= {f"q/{key}": value for key, value in sent.items()}.items()

    def require_all_copied(self) -> None:
        source, destination = self.servers
        assert destination.objects(self.bucket, "q/") == source.objects(self.bucket, "p/")


@contextmanager
def copy_at(
    moment: Moment,
    kit: ClientKit,
    world: World,
    servers: tuple[S3Server, S3Server],
    folder: Path,
    name: str,
    lease_s: float = 120.0,
) -> Iterator[MomentCopy]:
    """A copy whose buckets have a name of their own."""
    bucket = f"{name}-{moment}"
    with SITES[moment.cloud](world) as site, running(servers[1].endpoint) as proxy:
        clouds_file = folder / "clouds.yaml"
        yield MomentCopy(kit, world, site, servers, proxy, clouds_file, bucket, lease_s)
