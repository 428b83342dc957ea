"""The catalogue of faults, one schedule or a few for each, by its number there."""

from __future__ import annotations

from typing import Final, Literal

import pytest
from tests.simulation.buckets import Kind
from tests.simulation.control import CallFault
from tests.simulation.meddling import FrameKind
from tests.simulation.scenarios import (
    ACK_DEADLINE_S,
    MIXED_SIZES,
    ONE,
    TWO,
    WIDE,
    A,
    B,
    C,
    D,
    R,
    ensure_well,
    hop,
    play,
    run,
)
from tests.simulation.schedule import (
    DESTINATION_METHODS,
    KIB,
    LONG_PATHS,
    SHAPES,
    SOURCE_METHODS,
    STORE_FAULTS,
    Appear,
    Call,
    Change,
    Cut,
    Damage,
    Far,
    Frame,
    Kill,
    Lapse,
    Reset,
    Schedule,
    Slow,
    Stop,
    Store,
    Terminate,
    Truncate,
)

Side = Literal["source", "destination"]

every_role = pytest.mark.parametrize(
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


@pytest.mark.parametrize("restart_s", [None, 1.0])
@every_role
def test_a_killed_gateway_is_survived(shape: int, gateway: int, restart_s: float | None) -> None:
    assert run(shape, Kill(0.4, gateway, restart_s)).state == "succeeded"


@pytest.mark.parametrize("at_s", [0.25, 0.4, 0.7])
@every_role
def test_4a_a_gateway_told_to_end_is_survived(shape: int, gateway: int, at_s: float) -> None:
    """And known at once: no deadline (10 s, 20 s) has to pass, nor five polls."""
    outcome = run(shape, Terminate(at_s, gateway))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 10.0


@pytest.mark.parametrize("at_s", [0.25, 0.4, 0.7])
def test_4a_a_fleet_told_to_end_whole_is_ensured_again(at_s: float) -> None:
    outcome = run(WIDE, *(Terminate(at_s, gateway) for gateway in range(5)))
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("at_s", [0.25, 0.4, 0.7])
def test_4a_a_lead_told_to_end_is_succeeded(at_s: float) -> None:
    assert run(WIDE, Terminate(at_s, A)).state == "succeeded"


@pytest.mark.parametrize("at_s", [0.25, 0.4, 0.7])
def test_3a_a_killed_lead_is_survived(at_s: float) -> None:
    assert run(WIDE, Kill(at_s, A)).state == "succeeded"


@pytest.mark.parametrize("for_s", [55.0, 62.0, 70.0, 80.0])
@pytest.mark.parametrize("at_s", [0.35, 0.5])
def test_3a_a_lead_that_wakes_after_it_was_replaced_is_not_obeyed(
    at_s: float, for_s: float
) -> None:
    slow = [Slow(1.0, number, 900.0, 4e3) for number in range(4)]
    run(WIDE, Stop(at_s, A, for_s), *slow)


@pytest.mark.parametrize("at_s", [0.35, 0.45, 0.55])
def test_3a_chunks_of_a_stopped_source_are_refused_once_another_leads(at_s: float) -> None:
    slow = [Slow(0.2, number, 900.0, 4e3) for number in range(4)]
    run(WIDE, *slow, Stop(at_s, A, 70.0))


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
def test_6_a_partition_is_routed_around(ways: Literal["there", "back", "both"]) -> None:
    """After the deadline of its receipts."""
    outcome = run(TWO, Cut(0.4, 0, 400.0, ways))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 0.4 + 3 * ACK_DEADLINE_S


def test_7_a_lasting_partition_ends_in_bounded_time_with_the_reason() -> None:
    outcome = run(ONE, Cut(0.4, 0, 3000.0, "both"))
    assert outcome.state == "failed"
    assert outcome.reason
    assert outcome.virtual_s < 1000


def test_8_connections_that_break_repeatedly_are_survived() -> None:
    outcome = run(TWO, *(Reset(0.3 + 2 * turn, turn % 3) for turn in range(10)))
    assert outcome.state == "succeeded"


#: 170 ms there and back; what one connection carries, and how much there is to carry.
_LATENCY_S: Final = 0.085
_CONNECTION_BYTES_PER_S: Final = 1e5
_FAR_SIZES: Final = (260 * KIB,) * 12


@pytest.mark.parametrize("number", range(len(LONG_PATHS)))
def test_9_a_long_path_is_filled_by_all_its_connections(number: int) -> None:
    far = Far(0.0, 0, _LATENCY_S, _CONNECTION_BYTES_PER_S)
    schedule = Schedule(7, len(SHAPES) + number, _FAR_SIZES, (far,))
    outcome = ensure_well(schedule)
    assert outcome.state == "succeeded"
    connections = LONG_PATHS[number][0].connections[0]
    at_full_rate_s = sum(_FAR_SIZES) / (connections * _CONNECTION_BYTES_PER_S)
    # Beginning and end take some trips of control calls and store requests.
    assert outcome.inspection.ended_s < 1.25 * at_full_rate_s + 4.0


def test_10_a_straggler_is_survived() -> None:
    slow = Slow(0.0, hop(TWO, "a", "r"), 400.0, 2e3)
    assert run(TWO, slow).state == "succeeded"


@pytest.mark.parametrize("kind", ["duplicate", "swap", "drop"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("shape", [ONE, TWO])
def test_12_15_frames_that_are_lost_doubled_or_swapped_are_sent_again(
    shape: int, nth: int, kind: FrameKind
) -> None:
    outcome = run(shape, Frame(0.1, 0, kind, nth))
    assert outcome.state == "succeeded"
    assert outcome.inspection.ended_s < 3 * ACK_DEADLINE_S


@pytest.mark.parametrize("nth", range(1, 16, 2))
def test_13_a_damaged_frame_is_sent_again(nth: int) -> None:
    assert run(ONE, Frame(0.1, 0, "flip", nth)).state == "succeeded"


@pytest.mark.parametrize("first", range(1, 10))
def test_12_wrong_bytes_of_the_source_s_store_are_read_again(first: int) -> None:
    assert run(ONE, Store("source", "read", first, 1, "wrong bytes")).state == "succeeded"


def test_12_bytes_that_are_always_wrong_fail_their_objects_alone() -> None:
    outcome = run(ONE, Store("source", "read", 1, 200, "wrong bytes"))
    assert outcome.state == "failed"
    assert "6 of 6 objects failed" in outcome.reason
    assert "CRC32C" in outcome.reason


@pytest.mark.parametrize("offset", [0, 5, 60, 9000])
def test_14_damaged_bytes_break_the_connection_or_the_frame_alone(offset: int) -> None:
    assert run(ONE, Damage(0.35, 0, offset)).state == "succeeded"


@pytest.mark.parametrize("after_bytes", [0, 4, 200, 9000])
def test_14_a_truncated_stream(after_bytes: int) -> None:
    assert run(TWO, Truncate(0.35, 0, after_bytes)).state == "succeeded"


@pytest.mark.parametrize("slow", [("a", "r"), ("r", "b")])
def test_16_a_slow_hop_makes_no_queue_grow(slow: tuple[str, str]) -> None:
    sizes = (260 * KIB,) * 16
    faults = (Slow(0.0, hop(TWO, *slow), 900.0, 2e4), Slow(0.0, hop(TWO, "a", "b"), 900.0, 2e4))
    outcome = play(7, TWO, sizes, faults)
    assert outcome.state == "succeeded"
    # The sink's room, a quarter of what is under way; and no more frames than links.
    assert 0 < outcome.inspection.most_held_bytes <= 1024 * KIB < sum(sizes)
    assert outcome.inspection.most_waiting_frames <= 8


@pytest.mark.parametrize("first", [1, 3])
def test_18_a_body_that_ends_early_is_read_again(first: int) -> None:
    assert run(ONE, Store("source", "read", first, 2, "truncated")).state == "succeeded"


@pytest.mark.parametrize(
    ("side", "method"),
    [
        *[("source", method) for method in SOURCE_METHODS],
        *[("destination", method) for method in DESTINATION_METHODS],
    ],
)
def test_19_a_store_that_throttles_for_a_while(side: Side, method: str) -> None:
    outcome = run(ONE, Store(side, method, 1, 2, "throttled"))
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("method", ["put", "put_part", "complete_upload"])
def test_20_an_answer_that_is_lost_after_the_effect(method: str, conflict: str) -> None:
    outcome = run(ONE, Store("destination", method, 1, 1, "lost answer"), conflict=conflict)
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("count", [1, 200])
def test_21_a_completion_that_is_an_error_is_no_success(count: int) -> None:
    outcome = run(ONE, Store("destination", "complete_upload", 1, count, "unavailable"))
    assert outcome.state == ("succeeded" if count == 1 else "failed")


@pytest.mark.parametrize("then", ["again", "again elsewhere"])
def test_22_an_upload_that_is_gone_on_resume_is_begun_again(then: str) -> None:
    faults = (Cut(0.45, 0, 3000.0, "both"), Lapse(20.0))
    outcome = play(7, ONE, MIXED_SIZES, faults, then=then)
    assert outcome.state == "failed"
    assert outcome.inspection.then_state == "succeeded"
    # The objects in parts alone go again: half of them had arrived at most.
    assert outcome.inspection.put_bytes < sum(MIXED_SIZES)


@pytest.mark.parametrize("at_s", [0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_23_a_source_that_changes_is_never_copied_as_a_mixture(
    at_s: float, is_deleted: bool
) -> None:
    run(ONE, Change(at_s, 0, is_deleted), Change(at_s, 2, is_deleted))


@pytest.mark.parametrize("first", range(2, 9, 2))
def test_23_a_part_that_is_read_after_a_change_is_not_mixed_in(first: int) -> None:
    late = Store("source", "read", first, 2, "slow")
    run(ONE, late, *(Change(4.0, index, False) for index in range(len(MIXED_SIZES))))


@pytest.mark.parametrize("hundredth", range(30, 80, 4))
@pytest.mark.parametrize("vouches", [True, False])
def test_23_a_source_that_changes_once_is_copied_in_one_version(
    hundredth: int, vouches: bool
) -> None:
    changes = (Change(hundredth / 100, index, False) for index in (0, 2, 5))
    assert run(ONE, *changes, source_vouches=vouches).state == "succeeded"


@pytest.mark.parametrize("first", [1, 3, 5, 7])
def test_23_a_source_that_changes_before_it_is_read_is_read_again(first: int) -> None:
    late = Store("source", "read", first, 2, "slow")
    changes = (Change(3.0, index, False) for index in range(len(MIXED_SIZES)))
    assert run(ONE, late, *changes).state == "succeeded"


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("there", [0, 1])
@pytest.mark.parametrize("tenth", range(3, 12, 2))
def test_24_an_object_that_appears_meanwhile_is_not_replaced(
    conflict: str, there: int, tenth: int
) -> None:
    appear = (Appear(tenth / 10, index) for index in range(len(MIXED_SIZES)))
    run(ONE, *appear, conflict=conflict, there=there)


@pytest.mark.parametrize("method", ["put", "put_part", "complete_upload"])
def test_24_a_late_request_of_a_dead_sink_replaces_nothing(method: str) -> None:
    late = Store("destination", method, 1, 30, "late")
    appear = [Appear(10.0, index) for index in range(len(MIXED_SIZES))]
    run(WIDE, late, Kill(0.6, B), *appear)


@pytest.mark.parametrize(("side", "method"), [("source", "read"), ("destination", "put_part")])
def test_25_a_permission_that_is_withdrawn_fails_the_object_alone(side: Side, method: str) -> None:
    outcome = run(ONE, Store(side, method, 2, 1, "denied"))
    assert outcome.state == "failed"
    assert "grant it" in outcome.reason


@pytest.mark.parametrize("method", ["put", "put_part"])
@pytest.mark.parametrize("trusts", [True, False])
def test_bytes_that_a_store_spoils_are_found_and_sent_again(method: str, trusts: bool) -> None:
    for first in range(1, 12, 2):
        run(ONE, Store("destination", method, first, 1, "corrupt"), trusts_checksum=trusts)


# -- parts that the store copies itself


@pytest.mark.parametrize("kind", STORE_FAULTS["copy_part"])
def test_a_copy_at_the_store_that_goes_wrong_ends_equal(kind: Kind) -> None:
    """Where the store refuses it, the gateways send the object."""
    for first in range(1, 8, 2):
        outcome = run(ONE, Store("destination", "copy_part", first, 2, kind), server_side=True)
        assert outcome.state == "succeeded"
        assert outcome.inspection.copied_parts >= first


@pytest.mark.parametrize("hundredth", range(30, 80, 8))
def test_23_a_source_that_changes_is_copied_by_the_store_in_one_version(hundredth: int) -> None:
    changes = (Change(hundredth / 100, index, False) for index in (0, 2, 5))
    assert run(ONE, *changes, server_side=True).state == "succeeded"


@pytest.mark.parametrize("method", ["copy_part", "complete_upload"])
def test_24_a_late_copy_for_a_dead_sink_replaces_nothing(method: str) -> None:
    late = Store("destination", method, 1, 30, "late")
    appear = [Appear(10.0, index) for index in range(len(MIXED_SIZES))]
    run(WIDE, late, Kill(0.6, B), *appear, server_side=True)


@pytest.mark.parametrize("gateway", [A, B])
@pytest.mark.parametrize("at_s", [0.3, 0.4, 0.5])
def test_3a_the_copies_of_a_dead_lead_or_sink_are_continued(gateway: int, at_s: float) -> None:
    slow = Store("destination", "copy_part", 2, 4, "slow")
    outcome = run(WIDE, slow, Kill(at_s, gateway), server_side=True)
    assert (outcome.state, outcome.inspection.copied_parts > 2) == ("succeeded", True)


@pytest.mark.parametrize(("first", "kind"), [(1, "lost request"), (2, "lost answer"), (3, "slow")])
def test_control_calls_that_go_wrong_end_equal_or_reported(first: int, kind: CallFault) -> None:
    for number in range(first, 40, 3):
        run(WIDE, Call(number, kind))
