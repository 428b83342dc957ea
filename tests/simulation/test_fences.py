"""One schedule or a few for each fence: take it away and one of them fails.

`python -m tests.simulation.mutations` does that.
"""

from __future__ import annotations

from typing import Final

import pytest
from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import (
    KIB,
    Appear,
    Change,
    Cut,
    Fault,
    Frame,
    Kill,
    Schedule,
    Slow,
    Stop,
    Store,
)

_SIZES: Final = (260 * KIB, 700, 150 * KIB, 32 * KIB, 1, 70 * KIB)

#: One path; two of which one has a relay; two sources, one relay, two sinks.
ONE, TWO, WIDE = 0, 1, 2


def run(
    shape: int,
    *faults: Fault,
    conflict: str = "replace",
    there: int = 0,
    trusts: bool = True,
    vouches: bool = True,
) -> Outcome:
    schedule = Schedule(
        7, shape, _SIZES, faults, conflict, there, trusts_checksum=trusts, source_vouches=vouches
    )
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(["", repr(schedule), *outcome.findings, *outcome.log])
    return outcome


# -- the receipt deadline


@pytest.mark.parametrize("ways", ["there", "back"])
def test_a_silent_path_is_given_up_after_the_receipt_deadline(ways: str) -> None:
    outcome = run(TWO, Cut(0.4, 0, 400.0, ways))  # type: ignore[arg-type]
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 0.4 + 3 * 10.0


@pytest.mark.parametrize("nth", [1, 2])
def test_a_chunk_whose_frame_is_lost_goes_again_after_the_receipt_deadline(nth: int) -> None:
    outcome = run(ONE, Frame(0.1, 0, "drop", nth))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 3 * 10.0


# -- epochs


@pytest.mark.parametrize("for_s", [55.0, 62.0, 70.0, 80.0])
@pytest.mark.parametrize("at_s", [0.35, 0.5])
def test_a_lead_that_wakes_is_not_obeyed(at_s: float, for_s: float) -> None:
    slow = [Slow(1.0, number, 900.0, 4e3) for number in range(4)]
    run(WIDE, Stop(at_s, 0, for_s), *slow)


@pytest.mark.parametrize("at_s", [0.35, 0.45, 0.55])
def test_what_a_stopped_source_had_still_to_send_is_not_taken(at_s: float) -> None:
    """The lead of the next epoch is another source, and the sinks know it."""
    slow = [Slow(0.2, number, 900.0, 4e3) for number in range(4)]
    run(WIDE, *slow, Stop(at_s, 0, 70.0))


# -- preconditions


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("there", [0, 1])
def test_nothing_of_somebody_else_is_replaced_unseen(conflict: str, there: int) -> None:
    for tenth in range(3, 12):
        faults = (Appear(tenth / 10, index) for index in range(len(_SIZES)))
        run(ONE, *faults, conflict=conflict, there=there)


@pytest.mark.parametrize("method", ["put", "put_part", "complete_upload"])
def test_a_late_request_of_a_dead_sink_replaces_nothing(method: str) -> None:
    late = Store("destination", method, 1, 30, "late")
    appear = [Appear(10.0, index) for index in range(len(_SIZES))]
    run(WIDE, late, Kill(0.6, 2), *appear)


# -- the source's version


@pytest.mark.parametrize("vouches", [True, False])
@pytest.mark.parametrize("hundredth", range(30, 80, 4))
def test_a_source_that_changes_once_is_copied_in_one_version(hundredth: int, vouches: bool) -> None:
    changes = (Change(hundredth / 100, index, False) for index in (0, 2, 5))
    outcome = run(ONE, *changes, vouches=vouches)
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("first", [1, 3, 5, 7])
def test_a_small_source_that_changes_before_it_is_read_is_read_again(first: int) -> None:
    late = Store("source", "read", first, 2, "slow")
    changes = (Change(3.0, index, False) for index in range(len(_SIZES)))
    assert run(ONE, late, *changes).state == "succeeded"


# -- checksums


@pytest.mark.parametrize("nth", range(1, 16))
def test_a_damaged_frame_costs_a_sending_and_nothing_else(nth: int) -> None:
    assert run(ONE, Frame(0.1, 0, "flip", nth)).state == "succeeded"


@pytest.mark.parametrize("method", ["put", "put_part"])
@pytest.mark.parametrize("trusts", [True, False])
def test_what_a_store_spoils_is_found(method: str, trusts: bool) -> None:
    for first in range(1, 12):
        run(ONE, Store("destination", method, first, 1, "corrupt"), trusts=trusts)


@pytest.mark.parametrize("first", range(1, 10))
def test_what_the_source_s_store_gives_wrongly_is_found(first: int) -> None:
    assert run(ONE, Store("source", "read", first, 1, "wrong bytes")).state == "succeeded"
