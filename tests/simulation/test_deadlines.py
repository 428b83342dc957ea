"""A relay dies, alone or beside others: how soon the transfer reacts."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.run import SETTINGS
from tests.simulation.scenarios import ACK_DEADLINE_S, TWO, WIDE, R, run
from tests.simulation.schedule import Kill, Slow, Stop

#: The orchestrator asks for news five times in vain.
POLLS_S = 5.0


def test_a_relay_that_dies_is_noticed_at_once_and_its_chunks_go_elsewhere(
    orders: Counter[tuple[int, int]],
) -> None:
    """Its connections break with it: no deadline has to pass."""
    # Slow enough that chunks are on their way when it dies.
    slow = [Slow(0.0, hop, 400.0, 2e5) for hop in range(3)]
    outcome = run(TWO, *slow, Kill(0.6, R))
    assert outcome.state == "succeeded"
    assert max(orders.values()) == 2
    assert outcome.inspection.ended_s < ACK_DEADLINE_S


@pytest.mark.parametrize("stall_s", [20.0, 60.0])
def test_a_path_that_nobody_builds_again_is_waited_for_until_the_stall_deadline(
    stall_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then is the fleet ensured anew, which brings the relay back."""
    monkeypatch.setitem(SETTINGS, "stall_deadline_s", stall_s)
    outcome = run(WIDE, Kill(0.4, R))
    assert outcome.state == "succeeded"
    assert stall_s <= outcome.inspection.ended_s <= stall_s + POLLS_S


def test_a_relay_that_hangs_is_noticed_by_its_silence() -> None:
    slow = [Slow(0.0, hop, 400.0, 2e5) for hop in range(3)]
    outcome = run(TWO, *slow, Stop(0.6, R, 900.0))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 2 * ACK_DEADLINE_S
