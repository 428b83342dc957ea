"""Runs one schedule and inspects what is left."""

from __future__ import annotations

import hashlib
import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast
from unittest import mock

from tests.simulation.control import SLOW_S, CallerIdentity, ControlPlane, SimControlClient
from tests.simulation.fleet import FLEET_KEY, SimAuthority, SimFleet, SimProvisioner
from tests.simulation.injection import plan_faults
from tests.simulation.inspection import Claims, Inspection, inspect
from tests.simulation.network import Network
from tests.simulation.orchestrator import Orchestrator, SimPool
from tests.simulation.schedule import CHUNK_BYTES, Schedule, body_of, key_of
from tests.simulation.stores import Bucket, Buckets
from tests.simulation.world import EPOCH_S, World

from skyplane_gateway import ends
from skyplane_gateway.lead.report import Report
from skyplane_orchestration.job import TransferJob
from skyplane_orchestration.location import Location

#: No job takes longer, whatever goes wrong: bounded waits are part of what is tested.
WITHIN_S: Final = 3600.0

#: A process that ends waits so long for the calls that it is answering.
ANSWER_WITHIN_S: Final = 2 * SLOW_S

SETTINGS: Final[dict[str, Any]] = {
    "assembly_mib": 1,
    "readers": 3,
    "store_threads": 4,
    "ack_deadline_s": 10.0,
    "lease_s": 120.0,
}


@dataclass
class Scene:
    """All that takes part in one run."""

    schedule: Schedule
    world: World
    network: Network
    plane: ControlPlane
    fleet: SimFleet
    provisioner: SimProvisioner
    source: Bucket
    destination: Bucket
    orchestrators: list[Orchestrator] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims = Claims(self)
        self.woken_to_end: set[str] = set()

    @property
    def job(self) -> TransferJob:
        return TransferJob(
            Location(f"s3://{self.source.name}/", "aws:us-east-1"),
            Location(f"s3://{self.destination.name}/", "aws:eu-west-3"),
            volume_gb=1.0,
            conflict=cast(Any, self.schedule.conflict),
        )

    def orchestrate(self) -> None:
        """Have a new orchestrator take up the job."""
        process = self.world.process(f"orchestrator {len(self.orchestrators)}", "10.1.0.1")
        self.provisioner.authority.identity = CallerIdentity.orchestrator(
            self.plane, process, FLEET_KEY
        )
        orchestrator = Orchestrator(process, self.provisioner, self.job)
        self.orchestrators.append(orchestrator)
        orchestrator.start()

    @property
    def is_over(self) -> bool:
        return bool(self.orchestrators) and self.orchestrators[-1].is_over


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: what the last orchestrator says: `succeeded`, `failed`, or `error` where it
            has no result.
        findings: violations of the standing conditions; empty when all is well.
        digest: of the log; two runs of one schedule have the same.
    """

    schedule: Schedule
    state: str
    reason: str
    findings: tuple[str, ...]
    log: tuple[str, ...]
    virtual_s: float
    events: int
    digest: str
    inspection: Inspection


def run_schedule(schedule: Schedule) -> Outcome:
    """Run to the end, end the fleet, look."""
    world = World(schedule.seed)
    with _simulated(world) as buckets:
        scene = _scene(schedule, world, buckets)
        with _overheard(scene.claims):
            hang = _play(scene)
        inspection = inspect(scene, hang)
        world.close()
        for bucket in (scene.source, scene.destination):
            bucket.drop()
    log = tuple(world.log)
    return Outcome(
        schedule,
        inspection.state,
        inspection.reason,
        tuple(inspection.findings),
        log,
        world.now,
        world.events,
        hashlib.sha256("\n".join((*log, inspection.state)).encode()).hexdigest()[:16],
        inspection,
    )


def _play(scene: Scene) -> str:
    """Let it happen; what hangs, if anything does."""
    try:
        scene.world.run_until(lambda: scene.is_over, within_s=WITHIN_S)
        return _wind_up(scene)
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"


@contextmanager
def _overheard(claims: Claims) -> Iterator[None]:
    """Hear what leads enter into their reports."""
    add = Report._add

    def enter(
        report: Report,
        state: Any,
        source: str,
        destination: str,
        size_bytes: int,
        attempts: int,
        **more: Any,
    ) -> Any:
        claims.enter(state, source, destination, more)
        return add(report, state, source, destination, size_bytes, attempts, **more)

    with mock.patch.object(Report, "_add", enter):
        yield


def _scene(schedule: Schedule, world: World, buckets: Buckets) -> Scene:
    network, plane = Network(world), ControlPlane(world)
    fleet = SimFleet(world, network, plane, schedule.routes, SETTINGS)
    authority = SimAuthority(
        CallerIdentity.orchestrator(plane, world.process("nobody", "10.1.0.0"), FLEET_KEY)
    )
    source = Bucket(world, "source")
    destination = Bucket(world, "destination", trusts_checksum=schedule.trusts_checksum)
    buckets.by_name.update(source=source, destination=destination)
    destination.may_replace = schedule.conflict == "replace"
    _fill(schedule, source, destination)
    provisioner = SimProvisioner(fleet, authority)
    scene = Scene(schedule, world, network, plane, fleet, provisioner, source, destination)
    world.after(0.0, scene.orchestrate)
    plan_faults(scene)
    return scene


def _fill(schedule: Schedule, source: Bucket, destination: Bucket) -> None:
    for index, size in enumerate(schedule.sizes):
        if schedule.there and index % schedule.there == 0:
            destination.write(key_of(index), b"an older one" * (index + 1))
        source.write(key_of(index), body_of(schedule.seed, index, 0, size))


def _wind_up(scene: Scene) -> str:
    """What teardown does: ask all gateways to end; what hangs on, if anything does."""
    for gateway in scene.fleet.alive:
        scene.world.after(
            0.0, partial(gateway.service.request_shutdown, "the run is over"), gateway.process
        )
        if gateway.process.is_stopped:
            # It answers what was asked of it meanwhile while it ends; its exit ends the rest.
            scene.woken_to_end.add(gateway.process.name)
            gateway.process.resume()
    scene.network.heal_all()
    try:
        scene.world.run_until(lambda: not scene.fleet.alive, within_s=WITHIN_S)
        scene.world.run_for(ANSWER_WITHIN_S)
    except AssertionError as error:
        nodes = [gateway.process.name for gateway in scene.fleet.alive]
        return f"{', '.join(nodes)} cannot end: {error}"
    return ""


@contextmanager
def _simulated(world: World) -> Iterator[Buckets]:
    """Replace what touches the real world."""
    buckets = Buckets(world)
    chance = random.Random(world.seed)
    state = random.getstate()
    random.seed(world.seed)
    replaced: dict[str, object] = {
        "skyplane_gateway.service.ControlClient": SimControlClient,
        "skyplane_orchestration.sessions.ControlClient": SimControlClient,
        "skyplane_orchestration.sessions.ThreadPoolExecutor": partial(SimPool, world),
        "skyplane_orchestration.steering.open_store": buckets.open,
        "skyplane_orchestration.steering.mib_to_bytes": lambda _: CHUNK_BYTES,
    }
    if hasattr(ends, "open_limited"):
        replaced["skyplane_gateway.ends.open_limited"] = buckets.open_limited
    else:
        replaced["skyplane_gateway.ends.open_store"] = buckets.open
    with ExitStack() as stack:
        for target, new in replaced.items():
            stack.enter_context(mock.patch(target, new))
        for module, name, new in (
            (time, "time", lambda: EPOCH_S + world.now),
            (time, "monotonic", lambda: world.now),
            (time, "sleep", world.sleep),
            (os, "urandom", chance.randbytes),
            (uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128))),
        ):
            stack.enter_context(mock.patch.object(module, name, new))
        stack.callback(random.setstate, state)
        yield buckets
