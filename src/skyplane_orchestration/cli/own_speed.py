"""What a busy vCPU of this machine carries as a gateway, measured with gateways that run here."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.job_options import Verification
from skyplane_orchestration.grids.gateway_speed import RELAY, SINK, SOURCE, Role
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import NO_LIMITS, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import SolverReport
from skyplane_orchestration.units import BYTES_PER_MIB, gbps_of

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.provision.local import LocalOptions

#: Names of the regions of a chain of gateways on this machine.
_REGIONS: Final[dict[Role, str]] = {
    SOURCE: "aws:us-east-1",
    RELAY: "aws:us-east-2",
    SINK: "aws:us-west-2",
}
_FILES, _FILE_BYTES = 8, 64 * BYTES_PER_MIB
#: Of the first copy some seconds are those of the start; the median of the others counts.
_COPIES: Final = 4
#: Files and a copy, and as much again to spare.
_NEEDED_BYTES: Final = 4 * _FILES * _FILE_BYTES


class Chain:
    """A running source, relay and sink, and the client that has started them."""

    def __init__(self, client: Client, fleet: Fleet) -> None:
        self._client, self._fleet = client, fleet
        roles = {region: role for role, region in _REGIONS.items()}
        self._pids = {roles[one.region]: int(one.details["pid"]) for one in fleet.gateways}

    def gbps_per_vcpu(
        self, source: Location, target: Location, verify: Verification = "stored"
    ) -> dict[Role, float]:
        """Copy objects by sealed frames: the bits over the CPU seconds of each gateway; on Linux.

        Raises what a transfer raises.
        """
        job = TransferJob(source, target, encrypt="always", verify=verify)
        before = {role: _cpu_s_of(pid) for role, pid in self._pids.items()}
        copied = self._client.transfer(job, self._fleet).copied_bytes
        return {
            role: gbps_of(copied, _cpu_s_of(pid) - before[role]) for role, pid in self._pids.items()
        }


@contextmanager
def chain(options: LocalOptions) -> Iterator[Chain]:
    """A chain of gateways on this machine until the block ends; its secret is its own."""
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.planner.build_plan import PlanRequest, assemble
    from skyplane_orchestration.planner.overlay import Overlay
    from skyplane_orchestration.provision.local import LocalProvisioner
    from skyplane_orchestration.security.authority import FleetSecret

    client = Client(
        identity=RunIdentity("own-speed", "own-speed", secrets.token_hex(8)),
        provisioner=LocalProvisioner(options),
        secret=FleetSecret(secrets.token_bytes(32)),
        poll_s=0.1,
    )
    # One gateway in each role.
    grid, regions = client.grid, tuple(_REGIONS.values())
    flows = dict.fromkeys(pairwise(regions), 1.0)
    types = dict.fromkeys(regions, grid.instance_type("aws"))
    connections = dict.fromkeys(flows, 16)
    overlay = Overlay(1.0, {regions: 1.0}, flows, connections, dict.fromkeys(regions, 1), types)
    request = PlanRequest(grid, regions[0], regions[-1:], None, None, NO_LIMITS)
    solver = SolverReport("given", 0.0, 0.0, 0.0)
    fleet = client.provision(assemble(request, overlay, objective={}, binding=(), solver=solver))
    try:
        yield Chain(client, fleet)
    finally:
        client.teardown(fleet)


def speed_with_files() -> dict[Role, float]:
    """Gbit/s per vCPU of this machine by role, with files in memory at both ends; takes seconds.

    Raises OSError without the space for 2 GiB, and what provisioning and a transfer raise.
    """
    from skyplane_orchestration.provision.local import LocalOptions

    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > _NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="speed-", dir=memory if has_room else None) as name:
        folder = Path(name)
        (folder / "source").mkdir()
        for number in range(_FILES):
            (folder / "source" / str(number)).write_bytes(secrets.token_bytes(_FILE_BYTES))
        rounds = []
        with chain(LocalOptions(run_root=folder / "run", processes_per_instance=1)) as gateways:
            for number in range(_COPIES):
                copy = folder / f"copy-{number}"
                copy.mkdir()
                ends = (Location(f"{folder}/source/"), Location(f"{copy}/"))
                rounds.append(gateways.gbps_per_vcpu(*ends))
                shutil.rmtree(copy)
        return {role: median(rates[role] for rates in rounds[1:]) for role in _REGIONS}


def _cpu_s_of(pid: int) -> float:
    """CPU seconds of a process and its threads so far, to the nanosecond; on Linux.

    The clock's id is that of clock_getcpuclockid(3): `/proc` counts hundredths of a second.
    """
    return time.clock_gettime(~pid << 3 | 2)
