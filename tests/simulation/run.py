"""Runs one schedule and inspects what is left."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast
from unittest import mock

from tests.simulation.buckets import Bucket
from tests.simulation.control import SLOW_S, CallerIdentity, ControlPlane, SimControlClient
from tests.simulation.fleet import FLEET_KEY, SimAuthority, SimFleet, SimProvisioner
from tests.simulation.injection import calm, plan_faults
from tests.simulation.inspection import Inspection
from tests.simulation.network import Network
from tests.simulation.orchestrator import Canceller, Orchestrator, SimPool
from tests.simulation.rules import Claims, Rules
from tests.simulation.schedule import (
    ANNOUNCING,
    CHUNK_BYTES,
    Schedule,
    attributes_of,
    body_of,
)
from tests.simulation.stores import LATE_S, Buckets
from tests.simulation.world import Hang, Process, World

from skyplane_gateway import transfer_sides
from skyplane_gateway.lead.object_report import Report
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage import open as library_stores

#: No job takes longer, whatever goes wrong: the tests require bounded waits.
WITHIN_S: Final = 3600.0

#: The modules by which a gateway and a client open stores.
_STORE_OPENERS: Final = (transfer_sides, library_stores)

#: A process that ends waits so long for the calls that it is answering.
ANSWER_WITHIN_S: Final = 2 * SLOW_S

#: When objects were written that are there when the world begins.
_OLDER_S, _OLD_S, _NEW_S = -300.0, -200.0, -100.0

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
        self.rules = Rules(self.schedule.conflict, self.source, self.destination)
        #: All troubles are over.
        self.is_calm = False

    @property
    def job(self) -> TransferJob:
        there = "aws:us-east-1" if self.schedule.server_side else "aws:eu-west-3"
        return TransferJob(
            Location(f"s3://{self.source.name}/", "aws:us-east-1"),
            Location(f"s3://{self.destination.name}/", there),
            volume_gb=1.0,
            conflict=cast(Any, self.schedule.conflict),
            verify=cast(Any, self.schedule.verify),
            publish_last=(f"*{ANNOUNCING}",),
            move=self.schedule.move,
        )

    def orchestrate(self, handle: str = "") -> None:
        """Have a new orchestrator take up the job, or go on by a handle."""
        process = self.world.process(f"orchestrator {len(self.orchestrators)}", "10.1.0.1")
        self._identify(process)
        orchestrator = Orchestrator(process, self.provisioner, self.job, handle)
        self.orchestrators.append(orchestrator)
        orchestrator.start()

    def cancel(self) -> None:
        """Have somebody cancel what was submitted last."""
        if not self.orchestrators or not self.orchestrators[-1].submitted or self.is_over:
            return
        process = self.world.process("canceller", "10.1.0.2")
        Canceller(process, self.provisioner, *self.orchestrators[-1].submitted[-1]).start()

    def _identify(self, process: Process) -> None:
        self.provisioner.authority.identity = CallerIdentity.orchestrator(
            self.plane, process, FLEET_KEY
        )

    def write_source(self, index: int, version: int) -> None:
        seed, size = self.schedule.seed, self.schedule.sizes[index]
        self.source.write(
            self.schedule.key_of(index),
            body_of(seed, index, version, size),
            attributes_of(seed, index, version),
        )

    @property
    def is_over(self) -> bool:
        """Whether the last orchestrator has ended."""
        return bool(self.orchestrators) and self.orchestrators[-1].is_over

    @property
    def are_all_over(self) -> bool:
        """Whether none is at work any more: an earlier one may clear up after the last."""
        return self.is_over and all(
            other.is_over or other.process.is_dead for other in self.orchestrators
        )


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
    """Run to the end, go on where the schedule says so, end the fleet, look."""
    world = World(schedule.seed)
    inspection = Inspection()
    with _simulated(world) as buckets:
        scene = _scene(schedule, world, buckets)
        with _overheard(scene.claims):
            try:
                _play(scene, inspection)
            except AssertionError as error:
                inspection.findings.append(f"{type(error).__name__}: {error}")
        inspection.look_at_processes(scene)
        world.close()
        for bucket in (scene.source, scene.destination):
            bucket.drop()
    log = tuple(world.log)
    return Outcome(
        schedule,
        inspection.state,
        inspection.reason,
        tuple(dict.fromkeys(inspection.findings)),
        log,
        world.now,
        world.events,
        hashlib.sha256("\n".join((*log, inspection.state)).encode()).hexdigest()[:16],
        inspection,
    )


def _play(scene: Scene, inspection: Inspection) -> None:
    """Let it happen.

    Raises:
        AssertionError: something hangs.
    """
    scene.world.run_until(lambda: scene.are_all_over, within_s=WITHIN_S)
    inspection.ended_s = scene.world.now
    inspection.look_at_first(scene)
    scene.destination.is_left = not scene.destination.journals()
    calm(scene)
    scene.world.run_for(1.5 * max(LATE_S))
    inspection.look_again(scene)
    if scene.schedule.then != "nothing" and scene.source.data():
        _go_on(scene, inspection)
    _wind_up(scene)


def _go_on(scene: Scene, inspection: Inspection) -> None:
    """The same again, by its handle where it has left one."""
    scene.world.note(f"{scene.schedule.then}")
    result = scene.orchestrators[-1].result
    handle = result.resume_handle if result is not None else ""
    if scene.schedule.then == "again elsewhere":
        _wind_up(scene)
    scene.claims.last.clear()
    scene.destination.is_left = False
    scene.orchestrate(handle)
    scene.world.run_until(lambda: scene.are_all_over, within_s=WITHIN_S)
    inspection.look_at_second(scene, has_handle=bool(handle))


@contextmanager
def _overheard(claims: Claims) -> Iterator[None]:
    """Hear what leads enter into their reports."""
    add = Report.add

    def enter(report: Report, state: Any, row: Any, attempts: int, **more: Any) -> None:
        claims.enter(state, row.source.key, row.destination_key, more)
        add(report, state, row, attempts, **more)

    with mock.patch.object(Report, "add", enter):
        yield


def _scene(schedule: Schedule, world: World, buckets: Buckets) -> Scene:
    network, plane = Network(world), ControlPlane(world)
    fleet = SimFleet(world, network, plane, schedule.routes, SETTINGS)
    authority = SimAuthority(
        CallerIdentity.orchestrator(plane, world.process("nobody", "10.1.0.0"), FLEET_KEY)
    )
    source = Bucket(world, "source", trusts_checksum=schedule.source_vouches)
    destination = Bucket(world, "destination", trusts_checksum=schedule.trusts_checksum)
    buckets.by_name.update(source=source, destination=destination)
    provisioner = SimProvisioner(fleet, authority)
    scene = Scene(schedule, world, network, plane, fleet, provisioner, source, destination)
    _fill(scene)
    scene.rules.apply()
    world.after(0.0, scene.orchestrate)
    plan_faults(scene)
    return scene


def _fill(scene: Scene) -> None:
    """Objects at both transfer_sides, from the time before the world began."""
    schedule, world = scene.schedule, scene.world
    world.now = _OLDER_S
    _fill_destination(scene, 0)
    world.now = _OLD_S
    for index in range(len(schedule.sizes)):
        scene.write_source(index, 0)
    world.now = _NEW_S
    _fill_destination(scene, 1)
    _fill_destination(scene, 2)
    world.now = 0.0


def _fill_destination(scene: Scene, kind: int) -> None:
    """Objects from before the run: 0 different and older, 1 different and newer, 2 equal."""
    schedule = scene.schedule
    for index in range(0, len(schedule.sizes), schedule.there or len(schedule.sizes)):
        key = schedule.key_of(index)
        if not schedule.there or (index // schedule.there) % 3 != kind:
            continue
        if kind == 2:
            scene.destination.write(key, *scene.source.versions[key][0])
        else:
            scene.destination.write(key, b"somebody's own" * (index + 1))


def _wind_up(scene: Scene) -> None:
    """What teardown does: ask all gateways to end.

    Raises:
        AssertionError: some hang on.
    """
    for gateway in scene.fleet.alive:
        scene.fleet.ask_to_end(gateway, "the run is over")
    try:
        scene.world.run_until(lambda: not scene.fleet.alive, within_s=WITHIN_S)
        scene.world.run_for(ANSWER_WITHIN_S)
    except AssertionError as error:
        nodes = [gateway.process.name for gateway in scene.fleet.alive]
        raise Hang(f"{', '.join(nodes)} cannot end: {error}") from error


@contextmanager
def _simulated(world: World) -> Iterator[Buckets]:
    """Replace what touches the real world."""
    buckets = Buckets(world)
    replaced: dict[str, object] = {
        "skyplane_gateway.service.ControlClient": SimControlClient,
        "skyplane_orchestration.transfer.fleet_sessions.ControlClient": SimControlClient,
        "skyplane_orchestration.transfer.fleet_sessions.ThreadPoolExecutor": partial(
            SimPool, world
        ),
        "skyplane_orchestration.storage.parallel.ThreadPoolExecutor": partial(SimPool, world),
        "skyplane_gateway.stores.heads.ThreadPoolExecutor": partial(SimPool, world),
        "skyplane_orchestration.storage.open.mib_to_bytes": lambda _: CHUNK_BYTES,
    }
    for module in _STORE_OPENERS:
        replaced[f"{module.__name__}.open_store"] = buckets.open
    with ExitStack() as stack:
        for target, new in replaced.items():
            stack.enter_context(mock.patch(target, new))
        stack.enter_context(mock.patch.object(asyncio.TaskGroup, "_abort", _abort_in_order))
        yield buckets


def _abort_in_order(group: Any) -> None:
    """`TaskGroup._abort`, which takes its tasks in the order of a set: that of addresses."""
    group._aborting = True
    for task in sorted(group._tasks, key=_number_of):
        if not task.done():
            task.cancel()


def _number_of(task: asyncio.Task[Any]) -> int:
    """Tasks are named and numbered as they are made."""
    return int(task.get_name().rpartition("-")[2])
