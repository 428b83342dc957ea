"""When a running transfer gets another plan, and when its plan stays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from tests.manual_clock import ManualClock
from tests.planner.conftest import grid_of
from tests.transfer.samples import GB, JOB, KEY, fleet_of

from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_orchestration import planner
from skyplane_orchestration.model.fleet import LOCAL, Fleet
from skyplane_orchestration.model.job import (
    Limits,
    MaximizeThroughput,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer import in_flight
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.in_flight import (
    InFlightPlanner,
    Look,
    is_worthwhile,
    shortfall,
)

S, R, T = "aws:s", "azure:r", "gcp:t"
GRID: Final = grid_of({(S, T): (1.0, 0.10), (S, R): (4.0, 0.04), (R, T): (4.0, 0.08)})
RELAYED: Final = planner.plan(
    GRID,
    S,
    T,
    MaximizeThroughput(max_usd_per_gb=1.0),
    volume_gb=600.0,
    limits=Limits(instance_limit=1),
)
#: What each second at 1 Gbit/s delivers.
GBIT: Final = 125_000_000
WHY: Final = f"{S} > {R} delivered 0.80 of 4.00 Gbit/s"


def fleet(plan: TransferPlan = RELAYED, **more: Any) -> Fleet:
    regions = {"s": S, "r": R, "t": T}
    return fleet_of("srt", plan=plan, regions=regions, **{"provisioner": "aws", **more})


def rows(seconds: float, full_s: float, gbps: float, lacks: str = "") -> dict[str, Any]:
    """What each gateway says after so many seconds, of which the first hop was full in some."""
    sent = int(seconds * gbps * GBIT)
    row = {"number": 0, "frame_bytes": sent, "saturated_s": 0.0, "saturated_bytes": 0}
    first = {**row, "saturated_s": full_s, "saturated_bytes": int(full_s * gbps * GBIT)}
    return {node: [first if node == "s" else row] for node in "srt" if node not in lacks}


@pytest.mark.parametrize(
    ("full_s", "gbps", "delivered_gbps", "lacks", "slow", "lost"),
    [
        pytest.param(60.0, 0.8, 0.8, "", [0.8], (), id="a fifth of the share, for a minute"),
        pytest.param(30.0, 1.9, 1.9, "", [1.9], (), id="just below half of it"),
        pytest.param(60.0, 2.1, 2.1, "", None, (), id="just above half of it"),
        pytest.param(0.0, 0.8, 0.8, "", None, (), id="a slow store, or a bandwidth limit"),
        pytest.param(20.0, 0.8, 0.8, "", None, (), id="bytes waited for a third of the time"),
        pytest.param(60.0, 0.8, 0.0, "", None, (), id="a destination that is paused"),
        pytest.param(60.0, 3.0, 3.0, "r", [], (R,), id="no gateway of the relay answers"),
        pytest.param(0.0, 3.0, 3.0, "r", None, (), id="and nothing waits for it"),
        pytest.param(60.0, 3.0, 3.0, "t", None, (), id="an end is no relay"),
    ],
)
def test_what_is_wrong_between_two_looks(
    full_s: float,
    gbps: float,
    delivered_gbps: float,
    lacks: str,
    slow: list[float] | None,
    lost: tuple[str, ...],
) -> None:
    # Before it, the edge was as fast as planned.
    before = Look(1, 100.0, 0, rows(100.0, 100.0, 4.0, lacks))
    after = {
        node: [
            {name: value + more[0][name] if name != "number" else 0 for name, value in row.items()}
            for row in before.rows[node]
        ]
        for node, more in rows(60.0, full_s, gbps, lacks).items()
    }
    found = shortfall(fleet(), before, Look(1, 160.0, int(60 * delivered_gbps * GBIT), after), 0.0)
    if slow is None:
        assert found is None
        return
    assert found is not None
    assert found.gbps == pytest.approx(delivered_gbps)
    assert found.lost == lost
    assert [one.gbps for one in found.slow] == pytest.approx(slow)
    assert all((one.src, one.dst) == (S, R) for one in found.slow)


@pytest.mark.parametrize(
    ("rest_gb", "gbps", "planned_gbps", "is_worth_it"),
    [
        (100.0, 1.0, 2.0, True),  # 800 s or 400 + 30
        (100.0, 1.0, 1.2, True),  # 800 s or 667 + 30
        (100.0, 1.0, 1.1, False),  # 800 s or 727 + 30: 43 s less
        (1000.0, 1.0, 1.1, False),  # 8000 s or 7273 + 30: 697 s, 9 % less
        (1000.0, 1.0, 1.2, True),
        (10.0, 1.0, 9.0, False),  # 80 s in all
        (100.0, 1.0, 0.9, False),
    ],
)
def test_a_change_must_gain_a_tenth_and_a_minute(
    rest_gb: float, gbps: float, planned_gbps: float, is_worth_it: bool
) -> None:
    assert is_worthwhile(int(rest_gb * GB), gbps, planned_gbps) is is_worth_it


@dataclass
class Watched:
    """A monitor with a transfer that runs at a rate, over an edge that is full."""

    job: TransferJob = JOB
    fleet: Fleet = field(default_factory=fleet)
    gbps: float = 0.8
    others: bool = False
    lacks: str = ""
    looks: int = 0

    def __post_init__(self) -> None:
        self.hands = ManualClock(0.0)
        self.clock = self.hands.clock
        self.budget = Budget(None, self.clock)
        self.request = SimpleNamespace(job=self.job)
        self.submitted = None
        self.control = self
        self.context = SimpleNamespace(
            clock=self.clock,
            grid=lambda: GRID,
            fleets=SimpleNamespace(provisioner=SimpleNamespace(provision_s={})),
        )
        self.planner = InFlightPlanner(cast(Any, self))

    def route_rows(self) -> Mapping[str, Any]:
        self.looks += 1
        now_s = self.clock.monotonic()
        return rows(now_s, now_s, self.gbps, self.lacks)

    def carries_others(self, _: object) -> bool:
        return self.others

    def status(self, **changes: Any) -> TransferStatus:
        delivered = int(self.clock.monotonic() * self.gbps * GBIT)
        running = replace(
            TransferStatus(KEY, 1), listed=True, size_bytes=600 * GB, delivered_bytes={0: delivered}
        )
        return replace(running, seconds=self.clock.monotonic(), **changes)

    def after(self, seconds: float, **changes: Any) -> list[in_flight.NextPlan]:
        """The plans that are found while that time passes, with a poll each second."""
        found = []
        for _ in range(int(seconds)):
            self.hands.advance(1.0)
            status = self.status(**changes)
            self.budget.record(self.fleet, status)
            if (one := self.planner.look(status)) is not None:
                found.append(one)
        return found


def test_a_slow_edge_is_planned_around_on_the_instances_that_run() -> None:
    watched = Watched()
    assert watched.after(119.0) == []
    [found] = watched.after(1.0)
    assert found.reason == f"replanned after 2 min 0 s: {WHY}; now 1.00 Gbit/s over {S} > {T}"
    plan = found.fleet.plan
    assert (plan.relays, plan.replaces) == ((), RELAYED.shape)
    [measured] = found.fleet.probes
    assert measured.kind == "achieved"
    assert measured.gbps == pytest.approx(0.8)
    # For what is left; what was spent is in its total.
    spent_usd = watched.budget.cost.total_usd
    assert plan.volume_gb == pytest.approx(600.0 - 120 * 0.8 / 8)
    assert spent_usd > 0.0
    assert plan.cost.other_usd["before this plan"] == pytest.approx(spent_usd)
    items = (plan.cost.egress_usd, plan.cost.instance_usd, plan.cost.request_usd)
    more = (plan.cost.boot_usd, plan.cost.minimum_billing_usd, *plan.cost.other_usd.values())
    assert plan.cost.total_usd == pytest.approx(sum(one or 0.0 for one in (*items, *more)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"job": replace(JOB, bwlimit="100M")}, id="bandwidth limit"),
        pytest.param(
            {"job": replace(JOB, policy=Policy(on_no_capacity="fail"))}, id="a plan that stays"
        ),
        pytest.param({"fleet": fleet(provisioner=LOCAL)}, id="one machine"),
        pytest.param({"others": True}, id="another transfer on the fleet"),
        pytest.param({"gbps": 2.1}, id="more than half of the share"),
        pytest.param({"job": replace(JOB, policy=Policy(max_job_usd=1.0))}, id="too dear"),
    ],
)
def test_a_plan_that_stays(changes: dict[str, Any]) -> None:
    assert Watched(**changes).after(600.0) == []


def test_a_plan_stays_while_the_volume_is_not_known_and_at_the_end() -> None:
    assert Watched().after(600.0, listed=False) == []
    left = Totals(sent=(SentRow(S, R, 560 * GB), SentRow(R, T, 560 * GB)))
    # 40 GB less what is sent: in 120 s there are 28 left, for 280 s or 224 + 30.
    assert Watched().after(180.0, earlier=left) == []


def test_there_are_few_changes_and_long_pauses() -> None:
    watched = Watched()
    # As if each change had failed: the fleet stays.
    found = watched.after(3600.0)
    assert len(found) == in_flight.MOST_PLANS
    assert watched.looks <= 2 * len(found)
    first, second = (one.reason.split(":")[0] for one in found[:2])
    assert (first, second) == ("replanned after 2 min 0 s", "replanned after 8 min 0 s")


def test_a_look_counts_on_the_same_fleet_and_epoch_only() -> None:
    watched = Watched()
    watched.after(60.0)
    assert watched.after(60.0, epoch=2) == []
    assert len(watched.after(60.0, epoch=2)) == 1


def test_a_region_that_does_not_come_back_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(lacks="r")
    watched.hands.advance(60.0)
    found = watched.planner.without_lost(watched.status(), "it has no capacity")
    assert found is not None
    assert found.fleet.plan.relays == ()
    assert f"the gateways of {R} cannot be replaced: it has no capacity; now" in found.reason
    for lacks in ("", "t", "srt"):  # Another process may have taken it down.
        other = Watched(lacks=lacks)
        assert other.planner.without_lost(watched.status(), "no ports") is None
    strict = Watched(lacks="r", job=replace(JOB, policy=Policy(max_job_usd=1.0)))
    with caplog.at_level(logging.INFO, logger="skyplane_orchestration"):
        assert strict.planner.without_lost(watched.status(), "it has no capacity") is None
    assert "the plan stays, though the gateways of azure:r cannot be replaced" in caplog.text
