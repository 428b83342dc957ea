"""A relay dies, alone or beside others: how soon the transfer reacts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.simulation.run import SETTINGS, Outcome, run_schedule
from tests.simulation.schedule import KIB, Fault, Kill, Schedule, Slow, Stop

from skyplane_gateway.source.transfer import SourceTransfer

_SIZES = (260 * KIB, 700, 150 * KIB, 32 * KIB, 1, 70 * KIB)

#: Two paths, of which one has the relay; two paths that both lead through it.
BESIDE, ONLY = 1, 2
RELAY = 1

#: What the fleets of the simulation wait for a receipt, and their orchestrator for news.
DEADLINE_S, POLLS_S = 10.0, 5.0


def run(shape: int, *faults: Fault) -> Outcome:
    outcome = run_schedule(Schedule(7, shape, _SIZES, faults))
    assert not outcome.findings, outcome.findings
    return outcome


def test_a_relay_that_dies_is_noticed_at_once_and_its_chunks_go_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connections break with it: no deadline has to pass."""
    orders: Counter[int] = Counter()
    take = SourceTransfer.take

    def counted(source: SourceTransfer, order: Any) -> None:
        orders[order.chunk] += 1
        take(source, order)

    monkeypatch.setattr(SourceTransfer, "take", counted)
    # Slow enough that chunks are on their way when it dies.
    slow = [Slow(0.0, hop, 400.0, 2e5) for hop in range(3)]
    outcome = run(BESIDE, *slow, Kill(0.6, RELAY))
    assert outcome.state == "succeeded"
    assert max(orders.values()) == 2
    assert outcome.inspection.ended_s < DEADLINE_S


@pytest.mark.parametrize("stall_s", [20.0, 60.0])
def test_a_path_that_nobody_builds_again_is_waited_for_until_the_stall_deadline(
    stall_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then is the fleet ensured anew, which brings the relay back."""
    monkeypatch.setitem(SETTINGS, "stall_deadline_s", stall_s)
    outcome = run(ONLY, Kill(0.4, RELAY))
    assert outcome.state == "succeeded"
    assert stall_s <= outcome.inspection.ended_s <= stall_s + POLLS_S


def test_a_relay_that_hangs_is_noticed_by_its_silence() -> None:
    slow = [Slow(0.0, hop, 400.0, 2e5) for hop in range(3)]
    outcome = run(BESIDE, *slow, Stop(0.6, RELAY, 900.0))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 2 * DEADLINE_S
