"""When a fleet is probed, in which rounds, and what becomes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.manual_clock import ManualClock
from tests.planner.conftest import grid_of
from tests.transfer.samples import JOB

from skyplane_gateway.config import ProbeReport, Topology
from skyplane_orchestration import planner
from skyplane_orchestration.errors import (
    FleetLost,
    GatewayError,
    GatewayUnreachable,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import Fleet, FleetInstance, GatewayHandle
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, ProbeRule, TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.transfer import probe
from skyplane_orchestration.transfer.client_context import ClientContext

S, R, T = "aws:s", "azure:r", "gcp:t"
EDGES = ((S, R), (R, T), (S, T))
#: The relay is worth its price by the grid, and not as measured.
GRID = grid_of({(S, T): (1.0, 0.10), (S, R): (2.0, 0.04), (R, T): (2.0, 0.08)})
CARRIED = {(S, T): 1.2, (S, R): 0.5, (R, T): 2.1}
GIB = 1 << 30


def planned(volume_gb: float | None = 2000.0) -> TransferPlan:
    fastest = MaximizeThroughput(max_usd_per_gb=1.0)
    return planner.plan(GRID, S, T, fastest, volume_gb=volume_gb, limits=Limits(instance_limit=1))


PLAN = planned()


def instances_of(plan: TransferPlan) -> tuple[FleetInstance, ...]:
    return tuple(FleetInstance(f"{tag}/0", tag, f"i-{tag}", 900.0) for tag in plan.instances)


@dataclass
class World:
    """A fleet of a cloud with two gateways on each instance, and what happens to it."""

    plan: TransferPlan = PLAN
    provisioner: str = "cloud"
    statuses: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    error_round: int = 0
    rebuild_error: SkyplaneError | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    topology: Topology | None = None
    #: The edges that were measured at the same time.
    rounds: list[set[tuple[str, str]]] = field(default_factory=list)
    rebuilt: list[Fleet] = field(default_factory=list)
    torn_down: list[str] = field(default_factory=list)
    #: Its firewalls let gateways probe one another.
    is_open: bool = False

    @property
    def fleet(self) -> Fleet:
        gateways = tuple(
            GatewayHandle(f"{tag}/0.{number}", tag, ("h", 1), ("h", 2), "")
            for tag in self.plan.instances
            for number in range(2)
        )
        made = Fleet("ab", 0, "d", self.provisioner, self.plan, gateways, (), "", 60.0, 1e9)
        return replace(made, instances=instances_of(self.plan))

    def context(self) -> ClientContext:
        fleets = SimpleNamespace(
            provisioner=SimpleNamespace(provision_s={}),
            sessions=self.sessions,
            rebuild=self.rebuild,
            teardown_after_error=lambda fleet: self.torn_down.append(fleet.key),
        )
        made = SimpleNamespace(clock=self.clock.clock, grid=lambda: GRID, fleets=fleets)
        return cast(ClientContext, made)

    def rebuild(self, fleet: Fleet, *, is_to_probe: bool = False) -> Fleet:
        if is_to_probe:
            self.is_open = True
            return fleet
        self.is_open = False
        if self.rebuild_error is not None:
            raise self.rebuild_error
        self.rebuilt.append(fleet)
        return replace(fleet, provision_s=3.0, instances=instances_of(fleet.plan))

    def sessions(self, fleet: Fleet) -> Sessions:
        return Sessions(self, fleet)


class Sessions:
    def __init__(self, world: World, fleet: Fleet) -> None:
        self.world, self.fleet = world, fleet

    def each(
        self,
        handles: Iterable[GatewayHandle],
        call: Callable[[GatewayHandle, Any], Any],
        *,
        at_once: int = 16,
    ) -> dict[str, Any]:
        handles = list(handles)
        answers = {handle.node: call(handle, Gateway(self.world, handle)) for handle in handles}
        if any(isinstance(answer, ProbeReport) for answer in answers.values()):
            # Those that wait for another would be measured alone.
            assert at_once == len(handles)
            self.world.clock.advance(probe.PROBE_S)
            assert self.world.topology is not None
            pairs = [route.nodes for route in self.world.topology.routes]
            self.world.rounds.append({(a.partition("/")[0], b.partition("/")[0]) for a, b in pairs})
        return answers

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None: ...


class Gateway:
    def __init__(self, world: World, handle: GatewayHandle) -> None:
        self.world, self.handle = world, handle

    def put_topology(self, topology: Topology) -> None:
        self.world.topology = topology

    def status(self) -> dict[str, Any]:
        if "unreachable" in self.world.statuses:
            raise GatewayUnreachable("it does not answer")
        return {"connected": True, "attached": {}, "leading": {}, **self.world.statuses}

    def probe(self, number: int, seconds: float) -> ProbeReport:
        assert self.world.is_open
        if self.world.error is not None and len(self.world.rounds) == self.world.error_round:
            raise self.world.error
        assert self.world.topology is not None
        [route] = [one for one in self.world.topology.routes if one.number == number]
        (source, sink), [connections] = route.nodes, route.connections
        assert source == self.handle.node
        gbps = CARRIED[source.partition("/")[0], sink.partition("/")[0]] / 2
        return ProbeReport(gbps, 1000, seconds, connections, GIB)


@pytest.fixture
def run() -> Callable[..., Fleet]:
    def run(world: World, rule: ProbeRule = "auto", **changes: Any) -> Fleet:
        job: TransferJob = replace(JOB, probe=rule, **changes)
        return probe.probed(world.context(), job, world.fleet)

    return run


def test_a_fleet_is_planned_again_on_what_it_measures(
    run: Callable[..., Fleet], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=probe.log.name)
    world = World()
    found = run(world)
    assert {(one.src, one.dst): one.gbps for one in found.probes} == CARRIED
    # Two gateways with half of the connections each, and 2 GiB sent between them.
    for one in found.probes:
        src, dst = (GRID.index_of(tag) for tag in (one.src, one.dst))
        assert (one.connections, one.instances, one.bytes) == (64, 1, 2000)
        assert one.usd == pytest.approx(2 * GIB / 1e9 * GRID.usd_per_gb[src, dst])
        assert one.modelled_gbps == GRID.throughput_gbps[src, dst]
    assert found.plan.relays == ()
    assert found.plan.throughput_gbps == pytest.approx(1.2)
    assert (
        "probed 3 edges in 10 s: planned again: 1.20 Gbit/s instead of 2.00 Gbit/s" in caplog.text
    )
    # The fleet waits for the probe before its transfer.
    assert found.provision_s == 60.0 + 10.0
    assert [one.plan for one in world.rebuilt] == [found.plan]
    assert (world.torn_down, world.is_open) == ([], False)
    # The relay has ended, and is in the bill of the fleet.
    ended = FleetInstance(f"{R}/0", R, f"i-{R}", 900.0, 1010.0, 3.6)
    assert found.instances == (*instances_of(found.plan), ended)


def test_edges_are_measured_in_rounds_that_do_not_disturb_each_other(
    run: Callable[..., Fleet],
) -> None:
    world = World()
    run(world)
    assert world.rounds == [{(S, R), (R, T)}, {(S, T)}]
    tags = "abcdefg"
    every = [(src, dst) for src in tags for dst in tags if src != dst]
    rounds = probe.rounds_of(every)
    assert sorted(edge for one in rounds for edge in one) == sorted(every)
    for one in rounds:
        sources, sinks = zip(*one, strict=True)
        assert len(set(sources)) == len(set(sinks)) == len(one)


#: (the fleet, what the job changes) -> why `auto` leaves it alone.
LEFT_ALONE = {
    "gateways are on this machine": (World(provisioner="local"), {}),
    "the volume is not known": (World(planned(None)), {}),
    "more than 2% of the planned time": (World(planned(20.0)), {}),
    "may not send as fast as they can": (World(), {"bwlimit": "10M"}),
    "it has a transfer": (World(statuses={"attached": {"key": {}}}), {}),
    "does not answer": (World(statuses={"unreachable": True}), {}),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_auto_leaves_a_fleet_alone(
    run: Callable[..., Fleet], caplog: pytest.LogCaptureFixture, why: str
) -> None:
    caplog.set_level(logging.INFO, logger=probe.log.name)
    world, changes = LEFT_ALONE[why]
    assert run(world, **changes) == world.fleet
    assert (world.rounds, world.rebuilt) == ([], [])
    assert why in caplog.text


def test_auto_asks_for_a_hundredth_of_the_bill_at_most(
    run: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = probe.estimated(PLAN, GRID, probe.rounds_of(EDGES))
    # 5 s of 1 Gbit/s at 0.10, 2 at 0.04 and 2 at 0.08; two rounds of three instances.
    egress_usd = 5 / 8 * (1.0 * 0.10 + 2.0 * 0.04 + 2.0 * 0.08)
    assert cost.seconds == 2 * 7.0 + 10.0
    assert cost.usd == pytest.approx(egress_usd + 3 * 3.6 / 3600 * cost.seconds)
    assert PLAN.cost.total_usd is not None
    share = cost.usd / PLAN.cost.total_usd
    for most, is_probed in ((1.01 * share, True), (0.99 * share, False)):
        monkeypatch.setattr(probe, "MOST_COST", most)
        assert bool(run(World()).probes) == is_probed


def test_always_probes_whatever_that_takes_and_wherever_gateways_run(
    run: Callable[..., Fleet],
) -> None:
    for world in (World(planned(None)), World(planned(1.0)), World(provisioner="local")):
        assert run(world, "always").probes
    for world in (World(provisioner="in-process"), World(statuses={"leading": {"key": {}}})):
        assert run(world, "always") == world.fleet


def test_never_probes_nothing(run: Callable[..., Fleet]) -> None:
    world = World()
    assert run(world, "never") == world.fleet
    assert world.rounds == []


def test_no_limit_of_a_job_is_broken(
    run: Callable[..., Fleet], caplog: pytest.LogCaptureFixture
) -> None:
    policy = replace(JOB.policy, max_job_usd=1.0)
    world = World()
    assert run(world, "always", policy=policy) == world.fleet
    assert "would break the limits of the job" in caplog.text


@pytest.mark.parametrize("error", [GatewayError("it broke"), FleetLost("it is gone")])
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_probe_that_fails_gives_the_fleet_its_routes_back(
    run: Callable[..., Fleet], caplog: pytest.LogCaptureFixture, error: SkyplaneError, rounds: int
) -> None:
    world = World(error=error, error_round=rounds)
    found = run(world)
    assert found.plan == PLAN
    # The bytes of the first round were sent, and are paid.
    assert len(found.probes) == 2 * rounds
    assert [one.plan for one in world.rebuilt] == [PLAN]
    assert f"the probe failed, so the plan stays: {error}" in caplog.text


def test_an_interrupted_probe_leaves_no_fleet(run: Callable[..., Fleet]) -> None:
    world = World(error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(world)
    assert world.torn_down == ["ab"]


def test_a_fleet_that_gets_no_routes_any_more_is_taken_down(run: Callable[..., Fleet]) -> None:
    world = World(rebuild_error=FleetLost("it is gone"))
    with pytest.raises(FleetLost):
        run(world)
    assert world.torn_down == ["ab"]
