"""The catalogue of faults, one schedule or a few for each, by its number there."""

from __future__ import annotations

from typing import Final

import pytest
from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import (
    KIB,
    Appear,
    Call,
    Change,
    Cut,
    Damage,
    Fault,
    Frame,
    Kill,
    Reset,
    Schedule,
    Slow,
    Stop,
    Store,
    Truncate,
)

# The coroutines of a process that was killed never end, and so leave some unawaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

_SIZES: Final = (260 * KIB, 700, 150 * KIB, 32 * KIB, 1, 70 * KIB)

#: One path; two of which one has a relay; two sources, one relay, two sinks.
ONE, TWO, WIDE = 0, 1, 2
A, R, B, C, D = range(5)


def run(shape: int, *faults: Fault, conflict: str = "replace", trusts: bool = True) -> Outcome:
    schedule = Schedule(7, shape, _SIZES, faults, conflict, trusts_checksum=trusts)
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(["", repr(schedule), *outcome.findings, *outcome.log])
    return outcome


def hop(shape: int, origin: str, target: str) -> int:
    return Schedule(0, shape, ()).hops.index((origin, target))


@pytest.mark.parametrize("restart_s", [None, 1.0])
@pytest.mark.parametrize(
    ("shape", "gateway"),
    [
        pytest.param(TWO, R, id="1 relay"),
        pytest.param(WIDE, R, id="1 only relay"),
        pytest.param(WIDE, C, id="2 source"),
        pytest.param(WIDE, D, id="3 sink"),
        pytest.param(ONE, 1, id="3 only sink"),
        pytest.param(ONE, 0, id="3a only lead"),
    ],
)
def test_a_killed_gateway_is_survived(shape: int, gateway: int, restart_s: float | None) -> None:
    assert run(shape, Kill(0.4, gateway, restart_s)).state == "succeeded"


@pytest.mark.parametrize("at_s", [0.25, 0.4, 0.7])
def test_3a_a_killed_lead_is_survived(at_s: float) -> None:
    assert run(WIDE, Kill(at_s, A)).state == "succeeded"


@pytest.mark.parametrize("for_s", [62.0, 70.0, 80.0])
def test_3a_a_lead_that_wakes_after_it_was_replaced_is_not_obeyed(for_s: float) -> None:
    slow = [Slow(1.0, number, 900.0, 4e3) for number in range(4)]
    run(WIDE, Stop(0.4, A, for_s), *slow)


def test_4_a_fleet_killed_whole_is_ensured_again() -> None:
    outcome = run(WIDE, *(Kill(0.4, gateway) for gateway in range(5)))
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("gateway", [A, R, B, C, D])
@pytest.mark.parametrize("for_s", [5.0, 60.0])
def test_5_a_stopped_gateway_is_survived(gateway: int, for_s: float) -> None:
    outcome = run(WIDE, Stop(0.4, gateway, for_s))
    # All paths lead through the relay, and nobody waits that long for all paths.
    assert outcome.state == "succeeded" or (gateway == R and for_s > 20)


@pytest.mark.parametrize("ways", ["there", "back", "both"])
def test_6_a_partition_is_routed_around(ways: str) -> None:
    assert run(TWO, Cut(0.4, 0, 400.0, ways)).state == "succeeded"  # type: ignore[arg-type]


def test_7_a_lasting_partition_ends_in_bounded_time_with_the_reason() -> None:
    outcome = run(ONE, Cut(0.4, 0, 3000.0, "both"))
    assert outcome.state == "failed"
    assert outcome.reason
    assert outcome.virtual_s < 1000


def test_8_connections_that_break_again_and_again() -> None:
    outcome = run(TWO, *(Reset(0.3 + 2 * turn, turn % 3) for turn in range(10)))
    assert outcome.state == "succeeded"


def test_10_a_straggler_is_borne() -> None:
    slow = Slow(0.0, hop(TWO, "a", "r"), 400.0, 2e3)
    assert run(TWO, slow).state == "succeeded"


@pytest.mark.parametrize("kind", ["flip", "duplicate", "swap", "drop"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_12_13_15_frames_that_are_damaged_doubled_swapped_lost(kind: str, nth: int) -> None:
    fault = Frame(0.1, hop(TWO, "r", "b"), kind, nth)  # type: ignore[arg-type]
    assert run(TWO, fault).state == "succeeded"


@pytest.mark.parametrize("offset", [0, 5, 60, 9000])
def test_14_damaged_bytes_break_the_connection_or_the_frame_alone(offset: int) -> None:
    assert run(ONE, Damage(0.35, 0, offset)).state == "succeeded"


@pytest.mark.parametrize("after_bytes", [0, 4, 200, 9000])
def test_14_a_truncated_stream(after_bytes: int) -> None:
    assert run(TWO, Truncate(0.35, 0, after_bytes)).state == "succeeded"


@pytest.mark.parametrize("first", [1, 3])
def test_18_a_body_that_ends_early_is_read_again(first: int) -> None:
    assert run(ONE, Store("source", "read", first, 2, "truncated")).state == "succeeded"


@pytest.mark.parametrize(
    ("side", "method"),
    [
        ("source", "read"),
        ("destination", "put"),
        ("destination", "put_part"),
        ("destination", "create_upload"),
        ("destination", "complete_upload"),
    ],
)
def test_19_a_store_that_throttles_for_a_while(side: str, method: str) -> None:
    outcome = run(ONE, Store(side, method, 1, 2, "throttled"))  # type: ignore[arg-type]
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("method", ["put", "put_part", "complete_upload"])
def test_20_an_answer_that_is_lost_after_the_effect(method: str, conflict: str) -> None:
    outcome = run(ONE, Store("destination", method, 1, 1, "lost answer"), conflict=conflict)
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("at_s", [0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_23_a_source_that_changes_is_never_copied_as_a_mixture(
    at_s: float, is_deleted: bool
) -> None:
    run(ONE, Change(at_s, 0, is_deleted), Change(at_s, 2, is_deleted))


@pytest.mark.parametrize("first", range(2, 9, 2))
def test_23_a_part_that_is_read_after_a_change_is_not_mixed_in(first: int) -> None:
    late = Store("source", "read", first, 2, "slow")
    run(ONE, late, *(Change(4.0, index, False) for index in range(len(_SIZES))))


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("at_s", [0.3, 0.4, 0.5])
def test_24_an_object_that_appears_meanwhile_is_not_replaced(conflict: str, at_s: float) -> None:
    run(ONE, *(Appear(at_s, index) for index in range(len(_SIZES))), conflict=conflict)


@pytest.mark.parametrize(("side", "method"), [("source", "read"), ("destination", "put_part")])
def test_25_a_permission_that_is_withdrawn_fails_the_object_alone(side: str, method: str) -> None:
    outcome = run(ONE, Store(side, method, 2, 1, "denied"))  # type: ignore[arg-type]
    assert outcome.state == "failed"
    assert "grant it" in outcome.reason


@pytest.mark.parametrize("method", ["put", "put_part"])
@pytest.mark.parametrize("trusts", [True, False])
def test_bytes_that_a_store_spoils_are_found_and_sent_again(method: str, trusts: bool) -> None:
    run(ONE, Store("destination", method, 1, 1, "corrupt"), trusts=trusts)


@pytest.mark.parametrize("kind", ["lost request", "lost answer", "slow"])
def test_control_calls_that_go_wrong_end_equal_or_reported(kind: str) -> None:
    for number in range(1, 40):
        run(WIDE, Call(number, kind))  # type: ignore[arg-type]
