"""One path of four at a hundredth of its speed: the others do its work."""

from __future__ import annotations

from functools import cache

import pytest
from tests.simulation.run import SETTINGS, Outcome
from tests.simulation.scenarios import MESH, play
from tests.simulation.schedule import KIB, Schedule, Slow

_SIZES = tuple(size * KIB for size in (2000, 1000, 500, 260, 150, 1200, 1700, 900))
_USUAL_BYTES_PER_S = 1e5
_HOPS = Schedule(0, MESH, ()).hops


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of a receipt is far away: a straggler delivers, and is not lost."""
    monkeypatch.setitem(SETTINGS, "ack_deadline_s", 600.0)
    monkeypatch.setitem(SETTINGS, "lease_s", 2000.0)


@cache
def run(*stragglers: tuple[str, str]) -> Outcome:
    speeds = [Slow(0.0, number, 9000.0, _USUAL_BYTES_PER_S) for number in range(len(_HOPS))]
    for hop in stragglers:
        speeds.append(Slow(0.01, _HOPS.index(hop), 9000.0, _USUAL_BYTES_PER_S / 100))
    outcome = play(10, MESH, _SIZES, tuple(speeds))
    assert outcome.state == "succeeded"
    return outcome


@pytest.mark.parametrize(
    "stragglers",
    [
        pytest.param([("a", "b")], id="a direct path"),
        pytest.param([("a", "r"), ("r", "d")], id="a relay"),
    ],
)
def test_10_a_straggler_costs_less_than_half_of_the_time(
    stragglers: list[tuple[str, str]],
) -> None:
    healthy, slowed = run(), run(*stragglers)
    # Three quarters of the speed are left, and so a third more of the time is the least.
    assert slowed.inspection.ended_s <= 1.5 * healthy.inspection.ended_s
    # What was sent by another path as well is little.
    assert slowed.inspection.put_bytes <= 1.05 * sum(_SIZES)
