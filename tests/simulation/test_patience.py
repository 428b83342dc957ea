"""Stores that throttle, and what patience with them costs: in virtual time, whole fleets."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest
from tests.simulation.run import run_schedule
from tests.simulation.scenarios import ACK_DEADLINE_S, MIXED_SIZES, ONE, TWO, WIDE, R, run
from tests.simulation.schedule import Cancel, Fault, Kill, Schedule, Stop, Storm

Side = Literal["source", "destination"]


@pytest.mark.parametrize(
    ("shape", "sides", "at_s", "retry_after_s"),
    [
        *(
            (TWO, sides, at_s, None)
            for sides in (("source",), ("destination",), ("source", "destination"))
            for at_s in (0.0, 0.25, 0.4)
        ),
        (TWO, ("source", "destination"), 0.25, 20.0),
        (ONE, ("source", "destination"), 0.0, 20.0),
        (ONE, ("source", "destination"), 0.4, None),
    ],
)
def test_19_a_storm_of_30_s_at_every_verb_is_waited_out(
    shape: int,
    sides: tuple[Side, ...],
    at_s: float,
    retry_after_s: float | None,
    orders: Counter[tuple[int, int]],
) -> None:
    """Listings and journals included; and no chunk is sent twice for it."""
    outcome = run(shape, *(Storm(at_s, side, 30.0, retry_after_s) for side in sides))
    assert outcome.state == "succeeded"
    assert outcome.virtual_s < 400
    assert set(orders.values()) == {1}


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("shape", [ONE, WIDE])
def test_a_storm_of_minutes_is_waited_out_without_sending_anything_again(
    shape: int, side: Side, orders: Counter[tuple[int, int]]
) -> None:
    """Ten times longer than any path may be silent."""
    outcome = run(shape, Storm(0.4, side, 10 * ACK_DEADLINE_S))
    assert outcome.state == "succeeded"
    assert set(orders.values()) == {1}


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_storm_without_end_ends_in_bounded_time_with_the_reason(side: Side) -> None:
    outcome = run(ONE, Storm(0.4, side, 1e6))
    assert outcome.state in ("failed", "error")
    assert "throttles" in outcome.reason or "slow down" in outcome.reason
    assert outcome.virtual_s < 600


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("fault", [Kill(5.0, R), Stop(5.0, R, 200.0)])
def test_a_relay_that_is_lost_in_a_storm_is_survived(side: Side, fault: Fault) -> None:
    assert run(TWO, Storm(0.4, side, 60.0), fault).state == "succeeded"


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_cancel_does_not_wait_for_a_store_that_throttles(side: Side) -> None:
    """The store is retried for 300 s, and the caller of the cancel waits for its end."""
    outcome = run_schedule(Schedule(7, ONE, MIXED_SIZES, (Storm(0.4, side, 1e6), Cancel(5.0))))
    assert outcome.inspection.ended_s < 5.0 + 40.0
    # What the store refuses to let go of stays, by name in the journal, for the sweep.
    left = outcome.findings if side == "source" else ()
    assert not left
    assert all(finding.startswith("cancelled, but") for finding in outcome.findings)


def test_a_cancel_in_a_short_storm_leaves_nothing() -> None:
    run(ONE, Storm(0.4, "destination", 12.0), Cancel(5.0))
