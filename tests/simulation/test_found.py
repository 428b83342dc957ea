"""Schedules in which something was wrong once, each with what it was."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.simulation.scenarios import play
from tests.simulation.schedule import (
    KIB,
    Cancel,
    Change,
    Cut,
    Frame,
    Kill,
    KillClient,
    Slow,
    Stop,
    Store,
)

from skyplane_gateway.journal import cleanup
from skyplane_gateway.journal.document import LostRow, UploadRow
from skyplane_gateway.stores.base import ObjectStore


@pytest.mark.parametrize("twentieth", range(4, 12))
def test_a_cancel_at_any_moment_ends_the_transfer_and_leaves_nothing(twentieth: int) -> None:
    """One while it cleaned up had it run for ever: its end was never entered. One while an
    upload was begun left that upload open, after the journal was gone that named it."""
    moments = [(5 * twentieth + step / 2) / 100 for step in range(10)]
    ends = {play(7, 0, (5 * KIB, 40 * KIB), (Cancel(at_s),)).state for at_s in moments}
    assert ends <= {"cancelled", "succeeded"}


def test_a_lead_that_is_cancelled_twice_leaves_nothing_running() -> None:
    """It wakes to a cancel and to the end of its lease at once; its duties went on."""
    sizes = (32767, 700, 0, 65536, 32768, 5120, 153600, 32769, 1)
    faults = (Cancel(0.444), Slow(1.454, 0, 40.0, 1000.0), Stop(0.33, 0, 400.0))
    play(2768, 0, sizes, faults, "fail", 1, verify="reread", announcing=4)


def test_a_journal_that_is_written_late_is_there_for_the_next_lead() -> None:
    """The sink that had been attached anew removed it, and uploads were named nowhere."""
    faults = (
        Kill(0.898, 0, 20.0),
        Store("destination", "read", 3, 1, "throttled"),
        Store("destination", "put", 4, 30, "late"),
    )
    play(5431, 3, (71680, 32767, 32769, 71680), faults, "fail", verify="reread")


def test_a_lead_ends_whose_sinks_are_lost_or_refuse_it() -> None:
    """A refusal counted as a response, so the lead waited without end."""
    sizes = (71680, 153600, 266240, 266240, 5120)
    faults = (Kill(0.877, 2, 20.0), Stop(0.355, 0, 400.0))
    more = {"conflict": "replace-if-newer", "there": 2, "verify": "reread", "then": "again"}
    outcome = play(20496, 2, sizes, faults, **more)
    assert outcome.state == "succeeded"
    assert outcome.inspection.then_state == "succeeded"


def test_an_object_that_could_not_be_compared_fails_but_is_no_conflict() -> None:
    """A lead could not read the source of an object that its forerunner had written. It
    refused the object as somebody else's, and so did every run after it."""
    sizes = (153600, 32767, 32769, 1, 32768, 266240, 65536, 5120)
    faults = (
        Kill(0.439, 0, 0.5),
        Store("source", "head", 7, 1, "unavailable"),
        Store("destination", "complete_upload", 5, 1, "slow"),
        Store("source", "read", 7, 30, "ends early"),
    )
    more = {"trusts_checksum": True, "then": "again", "source_vouches": False}
    play(104312, 0, sizes, faults, "fail", 2, announcing=0, **more)


def test_a_journal_whose_body_ends_early_is_read_again_and_removed() -> None:
    """It stayed after a success, until a sweep."""
    faults = (Store("destination", "read", 1, 2, "ends early"),)
    sizes = (0, 65536, 71680, 65536, 71680, 71680, 65536, 0)
    play(141428995, 0, sizes, faults, "replace", 1, announcing=4, source_vouches=False)


def test_a_bad_copy_is_removed_although_its_transfer_ends_while_it_is_read_back() -> None:
    """It stayed, and the next run skipped it as somebody's object."""
    faults = (
        Store("destination", "put", 6, 2, "corrupt"),
        Store("destination", "read", 1, 1, "slow"),
        Store("source", "list", 7, 2, "throttled"),
    )
    more = {"announcing": 0, "move": True, "then": "again elsewhere"}
    play(271845231, 1, (1, 266240, 32768), faults, "skip", trusts_checksum=True, **more)


def test_a_copy_that_could_not_be_read_back_is_no_conflict() -> None:
    sizes = (32767, 266240, 71680, 0, 32768, 65536, 0, 153600)
    faults = (
        Store("destination", "read", 7, 30, "ends early"),
        Kill(2.369, 0),
        Kill(2.458, 0, 20.0),
        Stop(0.795, 0, 40.0),
    )
    more = {"announcing": 0, "then": "again", "source_vouches": False}
    play(111713, 2, sizes, faults, "fail", **more)


@pytest.mark.parametrize("trusts", [True, False])
def test_an_object_of_which_a_kept_part_was_spoilt_is_sent_again_from_its_beginning(
    trusts: bool,
) -> None:
    """It failed, and what announces it was withheld, although all could be had."""
    sizes = (0, 700, 266240, 266240, 700, 700)
    faults = (
        Store("destination", "put_part", 1, 1, "corrupt"),
        Kill(0.761, 0, 0.5),
        Slow(1.078, 0, 400.0, 1000.0),
        Store("source", "head", 8, 1, "slow"),
    )
    more = {"announcing": 3, "then": "again elsewhere", "trusts_checksum": trusts}
    outcome = play(114944, 0, sizes, faults, "replace-if-different", **more)
    assert outcome.inspection.then_state == "succeeded"


def test_a_run_that_joins_a_success_copies_no_later_version() -> None:
    """The source changed while the lead slept; a retry joins, and does not begin anew."""
    sizes = (32767, 32768, 700, 0, 32769, 32767)
    faults = (
        Cut(0.727, 0, 400.0, "back"),
        KillClient(0.222, 10.0),
        Change(2.301, 1, is_deleted=False),
        Stop(0.484, 0, 40.0),
    )
    outcome = play(117133, 0, sizes, faults, "replace-if-different", then="again")
    assert outcome.inspection.then_state == "succeeded"


@pytest.mark.parametrize(
    ("conflict", "state"),
    [
        ("skip", "failed"),
        ("replace-if-newer", "failed"),
        ("replace-if-different", "succeeded"),
        ("replace", "succeeded"),
    ],
)
def test_the_next_run_compares_a_copy_that_could_not_be_read_back(
    conflict: str, state: str
) -> None:
    """The store had spoilt it, and would not be read: the retry called it well."""
    faults = (
        Store("destination", "read", 4, 1, "denied"),
        Store("destination", "put", 4, 2, "corrupt"),
    )
    more = {"verify": "reread", "then": "again", "source_vouches": False}
    outcome = play(215807106953, 2, (71680, 32767, 32768), faults, conflict, **more)
    assert (outcome.state, outcome.inspection.then_state) == ("failed", state)


@pytest.mark.parametrize(
    ("conflict", "state"),
    [
        ("skip", "failed"),
        ("replace-if-newer", "failed"),
        ("replace-if-different", "failed"),
        ("replace", "succeeded"),
    ],
)
def test_an_unreadable_journal_makes_the_next_run_fail(conflict: str, state: str) -> None:
    """The store had spoilt it together with an object of which it would have spoken."""
    faults = (
        Store("destination", "read", 4, 1, "denied"),
        Store("destination", "put", 4, 30, "corrupt"),
    )
    more = {"verify": "reread", "then": "again", "source_vouches": False}
    outcome = play(215807106953, 2, (71680, 32767, 32768), faults, conflict, **more)
    assert (outcome.state, outcome.inspection.then_state) == ("failed", state)
    assert ("cannot be read" in outcome.inspection.then_reason) is (state == "failed")


def test_cleanup_reads_each_journal_once() -> None:
    """Each journal was read twice, and the readings that ended early met one of them."""
    sizes = (5120, 700, 32768, 71680, 32769, 153600, 32768, 32768, 266240)
    faults = (
        Store("destination", "delete", 6, 2, "throttled"),
        Store("destination", "read", 2, 2, "ends early"),
        Store("destination", "put", 3, 1, "corrupt"),
        Store("destination", "read", 4, 1, "throttled"),
    )
    more = {"there": 2, "then": "again elsewhere", "source_vouches": False}
    outcome = play(215807116887, 0, sizes, faults, "replace", **more)
    assert outcome.inspection.then_state == "succeeded"


def test_the_damaged_journal_of_a_transfer_keeps_no_upload_open() -> None:
    """A sink was stopped over a request for an upload. Another was to abort what that had
    made, and left it: the journal, spoilt just then, might name it. It did not, later."""
    sizes = (32768, 32767, 153600, 71680, 71680, 700, 5120, 32767, 1)
    faults = (
        Stop(0.446, 1, 400.0),
        Store("destination", "put", 5, 30, "corrupt"),
        Frame(0.394, 5, "flip", 4),
        Change(0.18, 2, is_deleted=False),
    )
    outcome = play(208548158426, 3, sizes, faults, "skip", then="again elsewhere")
    assert (outcome.state, outcome.inspection.then_state) == ("failed", "succeeded")


def test_a_gateway_that_ends_while_it_is_asked_is_replaced() -> None:
    """By the lease of one that had slept, in the moment in which the next run came."""
    faults = (Kill(2.105, 2, 20.0), Stop(0.314, 1, 400.0), Stop(1.853, 0, 0.5))
    sizes, rule = (700, 71680, 71680), "replace-if-different"
    outcome = play(208548163900, 1, sizes, faults, rule, announcing=4, then="again")
    assert (outcome.state, outcome.inspection.then_state) == ("failed", "succeeded")


def test_an_upload_of_a_lost_request_is_named_beside_its_successor() -> None:
    """A sink was stopped over a request for an upload. What the store made of that was looked
    for before it was there, and not again: the lead was killed, and its journal named the
    upload of the second request alone."""
    faults = (Kill(0.939, 1, 0.5), Stop(2.407, 0, 0.5), Stop(0.913, 4, 40.0))
    sizes, rule = (65536, 65536, 32768), "replace-if-different"
    outcome = play(145907886145, 2, sizes, faults, rule, announcing=4)
    assert outcome.state == "succeeded"


def test_cleanup_does_not_look_again_for_uploads_that_the_lead_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cleanup has little time: the last journal names the finished objects."""
    looked_for: list[object] = []
    abort = cleanup._abort

    def note(store: ObjectStore, row: UploadRow | LostRow, own: Collection[str]) -> None:
        looked_for.append(row)
        abort(store, row, own)

    monkeypatch.setattr(cleanup, "_abort", note)
    lost = Store("destination", "create_upload", 1, 3, "lost answer")
    outcome = play(1, 0, (300 * KIB, 200 * KIB), (lost,))
    assert outcome.state == "succeeded"
    assert looked_for == []


def test_an_object_written_after_the_listing_does_not_delay_announcing_objects() -> None:
    """It had been deleted before, and what announces the others did not wait for it."""
    faults = (
        Change(0.842, 4, is_deleted=False),
        Stop(0.559, 0, 40.0),
        Change(0.176, 4, is_deleted=True),
        Change(0.169, 4, is_deleted=False),
    )
    sizes = (65536, 700, 0, 1, 266240, 700, 32767)
    more = {"trusts_checksum": False, "announcing": 3, "source_vouches": False}
    outcome = play(145907886938, 2, sizes, faults, "fail", then="again elsewhere", **more)
    assert (outcome.state, outcome.inspection.then_state) == ("succeeded", "failed")


def test_an_upload_that_begins_after_the_end_is_left_to_the_sweep() -> None:
    """Sink and lead had been killed over that request, and the next lead was done before."""
    faults = (
        Kill(1.748, 0, 20.0),
        Slow(1.481, 0, 5.0, 1000.0),
        Kill(1.258, 2, 20.0),
        Store("destination", "create_upload", 3, 1, "slow"),
    )
    sizes = (153600, 32768, 32767, 1, 153600, 0, 153600, 32768)
    outcome = play(145907888048, 1, sizes, faults, "replace", announcing=3, then="again")
    assert (outcome.state, outcome.inspection.then_state) == ("succeeded", "succeeded")
