"""A profile of some regions: what it costs, when it stops, and that its fleet ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.manual_clock import ManualClock
from tests.planner.conftest import grid_of

from skyplane_orchestration.errors import BudgetReached, PlanInfeasible, SkyplaneError
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.transfer import profile
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.probe import probe_s, rounds_of

S, R, T = "aws:s", "azure:r", "gcp:t"
GRID = grid_of({(src, dst): (1.0, 0.10) for src in (S, R, T) for dst in (S, R, T) if src != dst})


@dataclass
class World:
    """A provisioner, and gateways whose probes of an edge cost so much."""

    usd: float = 0.02
    error: BaseException | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    events: list[str] = field(default_factory=list)

    def context(self) -> ClientContext:
        fleets = SimpleNamespace(
            ensure=self.ensure,
            teardown=lambda _: self.events.append("down"),
            teardown_after_error=lambda _: self.events.append("down after an error"),
        )
        made = SimpleNamespace(
            clock=self.clock.clock,
            grid=lambda: GRID,
            fleets=fleets,
            identity=RunIdentity("d", "o", "r"),
        )
        return cast(ClientContext, made)

    def ensure(self, key: str, plan: Any, *_: Any, is_to_probe: bool, **__: Any) -> Fleet:
        assert is_to_probe, "firewalls are open between all of its gateways"
        self.events.append("up")
        return Fleet(key, 0, "d", "local", plan, (), (), "", 1.0, 1e9)

    def measure(self, _: Any, __: Any, rounds: list[Any], ___: Any) -> Iterator[EdgeMeasurement]:
        for src, dst in (edge for one in rounds for edge in one):
            yield EdgeMeasurement(src, dst, 0.9, 64, 1, 3.0, 1, 1.8e9, usd=self.usd)
            if self.error is not None:
                raise self.error


def profiled(
    world: World, monkeypatch: pytest.MonkeyPatch, max_usd: float = 10.0
) -> list[EdgeMeasurement]:
    monkeypatch.setattr(profile, "measure", world.measure)
    return profile.profiled(world.context(), (S, R, T), max_usd, lambda _: None)


def test_all_ordered_pairs_are_measured_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    found = profiled(world, monkeypatch)
    assert {(one.src, one.dst) for one in found} == {
        (src, dst) for src in (S, R, T) for dst in (S, R, T) if src != dst
    }
    assert world.events == ["up", "down"]


def test_its_plan_says_what_will_be_sent_and_what_that_costs() -> None:
    plan = profile.profile_plan(GRID, (S, R, T))
    assert {tag: group.count for tag, group in plan.instances.items()} == {S: 1, R: 1, T: 1}
    # 5 s at 1 Gbit/s on each of six edges.
    assert plan.volume_gb == pytest.approx(6 * 5 / 8)
    assert plan.cost.egress_usd == pytest.approx(0.10 * 6 * 5 / 8)
    assert plan.transfer_s == pytest.approx(probe_s(rounds_of(
        (edge.src, edge.dst) for edge in plan.edges
    )))  # fmt: skip


def test_one_that_costs_more_than_allowed_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    usd = profile.profile_plan(GRID, (S, R, T)).cost.total_usd or 0.0
    with pytest.raises(PlanInfeasible, match="max_usd"):
        profiled(world, monkeypatch, usd * 0.999)
    assert world.events == []
    profiled(world, monkeypatch, usd * 1.001)


def test_it_stops_when_it_has_cost_what_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    # More is sent than the grid says.
    world = World(usd=5.0)
    with pytest.raises(BudgetReached, match="cost 10 USD"):
        profiled(world, monkeypatch, 8.0)
    assert world.events == ["up", "down after an error"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SkyplaneError("a gateway is gone")])
def test_its_fleet_ends_whatever_happens(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(error=error)
    with pytest.raises(type(error)):
        profiled(world, monkeypatch)
    assert world.events == ["up", "down after an error"]
