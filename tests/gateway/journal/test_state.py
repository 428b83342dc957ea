from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.journal import state as module
from skyplane_gateway.journal.document import (
    MAX_JOURNAL_BYTES,
    DoneRow,
    Journal,
    LostRow,
    UploadRow,
    encode_journal,
)
from skyplane_gateway.journal.state import BoundedRows, JournalState

START = Journal(transfer_key="ab" * 16, epoch=1, rule="r", chunk_bytes=1)


def done(key: str, *, is_fresh: bool = False) -> DoneRow:
    return DoneRow(key, f"etag of {key}", f"source of {key}", 1, 2, is_fresh=is_fresh)


def upload(key: str) -> UploadRow:
    return UploadRow(key, None, f"from/{key}", "v", 30, 10)


def state_of(*keys: str, start: Journal = START) -> JournalState:
    state = JournalState(start)
    for key in keys:
        state.listed(key)
    return state


def test_through_follows_the_first_key_that_has_not_ended() -> None:
    state = state_of("a", "b", "c", "d")
    state.committed(done("b"))
    state.committed(done("d"))
    journal = state.journal(1)
    assert (journal.through, journal.begun) == (None, ("a", "c"))
    assert [row.key for row in journal.done] == ["b", "d"]
    state.skipped("a")
    journal = state.journal(2)
    assert (journal.through, journal.begun) == ("b", ("c",))
    assert [row.key for row in journal.done] == ["d"]
    state.committed(done("c"))
    journal = state.journal(3)
    assert (journal.through, journal.begun, journal.done) == ("d", (), ())


def test_through_passes_a_failed_key_and_the_next_epoch_retries_it() -> None:
    state = state_of("a", "b")
    state.failed("a", "precondition-failed")
    state.committed(done("b"))
    journal = state.journal(1)
    assert journal.through == "b"
    assert [(row.key, row.code) for row in journal.failed] == [("a", "precondition-failed")]
    again = JournalState(journal).journal(1)
    assert (again.through, again.begun, again.failed, again.failed_count) == ("b", ("a",), (), 0)


def test_an_upload_from_its_intent_to_its_end() -> None:
    state = state_of("a")
    state.upload_intended(upload("a"))
    assert state.journal(1).uploads == (upload("a"),)
    state.upload_created("a", "id")
    state.upload_committing("a", 77)
    assert state.journal(2).uploads == (replace(upload("a"), upload_id="id", crc32c=77),)
    state.committed(done("a"))
    assert state.journal(3).uploads == ()


def test_an_upload_that_could_not_be_aborted_stays_named() -> None:
    """The row of the second upload does not replace it."""
    state = state_of("a")
    state.upload_intended(upload("a"))
    state.upload_created("a", "1")
    state.upload_intended(upload("a"))
    first = replace(upload("a"), upload_id="1")
    assert state.journal(1).uploads == (first, upload("a"))
    state.upload_created("a", "2")
    state.upload_committing("a", 77)
    second = replace(upload("a"), upload_id="2", crc32c=77)
    journal = state.journal(2)
    assert journal.uploads == state.uploads == (first, second)
    assert JournalState(journal).journal(2) == journal
    state.upload_aborted("a", "1")
    assert state.journal(3).uploads == (second,)
    # Also in the other order, and when the key has ended meanwhile.
    state = JournalState(journal)
    state.upload_aborted("a", "2")
    assert state.journal(1).uploads == (first,)
    state = JournalState(journal)
    state.committed(done("a"))
    assert state.journal(1).uploads == (first,)


def test_a_fresh_object_stays_named_when_through_has_passed_it() -> None:
    state = state_of("a", "b", "c")
    state.committed(done("b", is_fresh=True))
    state.committed(done("a", is_fresh=True))
    state.committed(done("c"))
    journal = state.journal(1)
    assert journal.through == "c"
    assert [row.key for row in journal.done] == ["a", "b"]
    # The next epoch keeps it until the object is written again or fails.
    state = state_of("a", "b", start=journal)
    assert state.journal(1).done == journal.done
    state.committed(done("a"))
    state.failed("b", "c")
    assert state.journal(2).done == ()


def test_fresh_objects_are_named_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_BYTES", 1000)
    state = state_of()
    for number in range(100):
        key = f"{number:03}"
        state.listed(key)
        state.committed(done(key, is_fresh=True))
    journal = state.journal(1)
    assert journal.through == "099"
    assert 0 < len(journal.done) < 20


def test_through_does_not_count_keys_that_are_published_last() -> None:
    state = state_of("a", "c")
    state.committed(done("a"))
    state.committed(done("c"))
    state.listed("b", is_last=True)
    assert state.journal(1).begun == ("b",)
    state.committed(done("b"))
    journal = state.journal(2)
    assert (journal.through, journal.begun) == ("c", ())
    assert [(row.key, row.is_last) for row in journal.done] == [("b", True)]
    # The next epoch keeps it.
    assert JournalState(journal).journal(1).done == journal.done


def test_a_new_epoch_repeats_the_journal_of_the_old_one() -> None:
    state = state_of("a", "b", "c", "d")
    state.committed(done("c"))
    state.upload_intended(upload("b"))
    state.skipped("a")
    old = state.journal(4)
    assert old.begun == ("b", "d")
    assert JournalState(old).journal(4) == old


def test_a_complete_journal_stays_so_until_a_key_is_listed() -> None:
    """The next epoch of a finished move finds an empty source, which is no error then."""
    state = state_of("a")
    state.committed(done("a"))
    assert not state.journal(1).is_complete
    state.ended(is_complete=True)
    next_epoch = JournalState(state.journal(2))
    assert next_epoch.journal(1).is_complete
    next_epoch.listed("b")
    assert not next_epoch.journal(2).is_complete
    next_epoch.failed("b", "not-found")
    next_epoch.ended(is_complete=False)
    assert not next_epoch.journal(3).is_complete


@dataclass
class Truth:
    """What happened to each key."""

    listed: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    uploads: dict[str, str | None] = field(default_factory=dict)
    #: Uploads of keys that have begun again since.
    strays: set[tuple[str, str]] = field(default_factory=set)
    #: Requests without an answer, also of keys that have ended.
    lost: dict[str, LostRow] = field(default_factory=dict)
    begun: int = 0


def check(journal: Journal, truth: Truth) -> None:
    named = {*journal.begun, *(row.key for row in journal.failed)}
    for key in truth.listed:
        passed = journal.through is not None and key <= journal.through
        assert not passed or key in truth.ended or key in named, key
    uploads = [(row.key, row.upload_id) for row in journal.uploads]
    assert sorted(map(repr, uploads)) == sorted(map(repr, [*truth.strays, *truth.uploads.items()]))
    assert truth.uploads.items() <= dict(uploads).items()
    lost = {row.key: row for row in journal.lost}
    assert lost == truth.lost or (module.LOST_BYTES < 1 << 19 and lost.keys() <= truth.lost.keys())
    assert len(encode_journal(journal)) <= MAX_JOURNAL_BYTES


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_through_never_passes_a_key_that_has_not_ended(data: Any) -> None:
    """For any order of events, any bounds and any number of epochs."""
    limits = st.sampled_from([0, 60, 200, 1 << 20])
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "DONE_BYTES",
            "LAST_DONE_BYTES",
            "FRESH_BYTES",
            "BEHIND_BYTES",
            "BEHIND_AT_MOST_BYTES",
            "BEGUN_BYTES",
            "FAILED_BYTES",
            "LOST_BYTES",
        ):
            patch.setattr(module, name, data.draw(limits))
        patch.setattr(module, "LISTED_KEYS", data.draw(st.sampled_from([0, 1, 3, 100])))
        keys = [f"{number:03}" for number in range(data.draw(st.integers(1, 12)))]
        last = set(data.draw(st.lists(st.sampled_from(keys), max_size=2)))
        journal, truth = START, Truth()
        for _ in range(data.draw(st.integers(1, 3))):
            journal = run_epoch(data, journal, truth, keys, last)


def run_epoch(data: Any, start: Journal, truth: Truth, keys: list[str], last: set[str]) -> Journal:
    """One epoch: its lead lists every key again, and dies after some event."""
    state, open_keys = JournalState(start), set[str]()
    waiting = [key for key in keys if key not in last] + sorted(last)
    check(state.journal(0), truth)
    # The last upload of a key is the one that is continued.
    rows = [(row.key, row.upload_id) for row in start.uploads]
    truth.uploads = dict(rows)
    truth.strays = {(key, id_) for key, id_ in rows if id_ and truth.uploads[key] != id_}
    for sequence in range(data.draw(st.integers(0, 30))):
        if waiting and (not open_keys or data.draw(st.booleans())):
            key = waiting.pop(0)
            if key in truth.ended and data.draw(st.booleans()):
                continue  # The store confirms that it is done.
            truth.ended.discard(key)
            if key not in last:
                truth.listed.append(key)
            state.listed(key, is_last=key in last)
            open_keys.add(key)
        elif open_keys:
            key = data.draw(st.sampled_from(sorted(open_keys)))
            if happens(data, state, truth, key):
                open_keys.discard(key)
        check(state.journal(sequence), truth)
    return replace(state.journal(0), epoch=start.epoch + 1)


def happens(data: Any, state: JournalState, truth: Truth, key: str) -> bool:
    """A random event of the key; whether the key has ended by it."""
    choices = ["committed", "skipped", "failed", "intent", "lost", "settled"]
    if key in truth.uploads:
        choices += ["created", "aborted"] if truth.uploads[key] is None else ["aborted"]
    strays = sorted(stray for stray in truth.strays if stray[0] == key)
    if strays:
        choices.append("stray aborted")
    what = data.draw(st.sampled_from(choices))
    if what == "intent":
        state.upload_intended(upload(key))
        old = truth.uploads.get(key)
        if old is not None:
            truth.strays.add((key, old))
        truth.uploads[key] = None
    elif what == "created":
        truth.begun += 1
        truth.uploads[key] = f"{truth.begun}"
        state.upload_created(key, f"{truth.begun}")
    elif what == "aborted":
        state.upload_aborted(key, truth.uploads.pop(key))
    elif what == "stray aborted":
        state.upload_aborted(*strays[0])
        truth.strays.remove(strays[0])
    elif what == "committed":
        state.committed(done(key, is_fresh=data.draw(st.booleans())))
        truth.uploads.pop(key, None)
        truth.ended.add(key)
    elif what == "lost":
        row = LostRow(key, truth.begun, truth.begun + 1)
        state.create_lost(row)
        truth.lost[key] = row
    elif what == "settled":
        state.create_resolved(key)
        truth.lost.pop(key, None)
    elif what == "skipped":
        state.skipped(key)
        truth.ended.add(key)
    else:
        state.failed(key, "c")
    return what in ("committed", "skipped", "failed")


def test_a_journal_of_thirty_thousand_failures_stays_small() -> None:
    state = state_of()
    for number in range(30_000):
        key = f"1/{number:06}"
        state.listed(key)
        state.failed(key, "permission-denied")
        state.listed(f"{key}/x")
        state.committed(done(f"{key}/x"))
    journal = state.journal(1)
    assert journal.failed_count == 30_000
    assert len(encode_journal(journal)) < MAX_JOURNAL_BYTES
    named = {*journal.begun, *(row.key for row in journal.failed)}
    assert journal.through is not None
    passed = [f"1/{number:06}" for number in range(30_000) if f"1/{number:06}" <= journal.through]
    assert set(passed) <= named
    assert len(passed) > 5_000


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_KEYS", 20)
    for name in ("BEHIND_BYTES", "FAILED_BYTES", "BEGUN_BYTES"):
        monkeypatch.setattr(module, name, 200)
    monkeypatch.setattr(module, "BEHIND_AT_MOST_BYTES", 300)


def remembered(state: JournalState) -> int:
    """Keys that the state keeps."""
    kept = (state._listed, state._open, state._last)
    rows = (state._behind, state._begun_earlier)
    return sum(map(len, kept)) + sum(map(len, rows)) + len(state._failed)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("ends", ["failed", "skipped", "committed", "failed last"])
@pytest.mark.parametrize("slow", [True, False])
def test_memory_is_bounded_however_keys_end(ends: str, slow: bool) -> None:
    state = state_of(*["0 slow"] * slow)
    for number in range(1000):
        key = f"1/{number:06}"
        state.listed(key, is_last="last" in ends)
        if "failed" in ends:
            state.failed(key, "c")
        elif ends == "skipped":
            state.skipped(key)
        else:
            state.committed(done(key))
        assert remembered(state) < 100
    journal = state.journal(1)
    passed = journal.through is not None and journal.through >= "0 slow"
    assert not passed or not slow or "0 slow" in journal.begun


@pytest.mark.usefixtures("small_bounds")
def test_through_goes_back_where_names_have_no_room() -> None:
    """All keys had ended, and fail now one after another."""
    state = state_of(start=replace(START, through="1/999999"))
    for number in range(100):
        key = f"1/{number:06}"
        state.listed(key)
        state.failed(key, "c")
        assert remembered(state) < 100
    journal = state.journal(1)
    named = {*journal.begun, *(row.key for row in journal.failed)}
    assert journal.through is not None
    assert "1/000002" < journal.through < "1/000050"
    assert {f"1/{n:06}" for n in range(100) if f"1/{n:06}" <= journal.through} <= named


@pytest.mark.usefixtures("small_bounds")
def test_too_many_inherited_names_reset_through() -> None:
    names = tuple(f"1/{number:06}" for number in range(100))
    state = JournalState(replace(START, through="1/999999", begun=names))
    assert state.journal(1).through is None
    assert remembered(state) < 100
    state.listed("1/000000")
    state.skipped("1/000000")
    assert state.journal(2).through == "1/000000"


def test_rows_know_their_size_exactly() -> None:
    rows: BoundedRows[str] = BoundedRows(12)
    assert rows.add("a", "aaa")
    assert rows.add("b", "bbb")
    assert not rows.add("c", "c")
    assert rows.add("a", "é"[:0])
    assert rows.add("d", "d", limit_bytes=20)
    rows.discard("a")
    rows.discard("none")
    assert sorted(rows) == ["bbb", "d"]
    assert ("a" in rows, "b" in rows, len(rows)) == (False, True, 2)


def test_requests_without_an_answer_stay_named_in_later_epochs() -> None:
    """Also when the key has ended."""
    state = state_of("a", "b")
    state.upload_intended(upload("a"))
    state.create_lost(LostRow("a", 10.0, 12.0))
    state.upload_created("a", "1")
    state.committed(done("a"))
    journal = JournalState(replace(state.journal(1), epoch=2)).journal(1)
    assert (journal.uploads, journal.lost) == ((), (LostRow("a", 10.0, 12.0),))
    state.create_lost(LostRow("a", 20.0, 21.0))
    assert state.journal(2).lost == (LostRow("a", 20.0, 21.0),)
    state.create_resolved("a")
    assert state.journal(3).lost == ()


def test_requests_without_an_answer_are_bounded() -> None:
    state = state_of()
    for number in range(20_000):
        state.create_lost(LostRow(f"{number:05}", 1700000000.5, 1700000001.5))
    rows = state.journal(1).lost
    assert 1_000 < len(rows) < 20_000
    assert len(encode_journal(replace(START, lost=rows))) < 1.1 * module.LOST_BYTES
    again = JournalState(replace(START, lost=rows))
    again.create_lost(LostRow("one more", 1700000000.5, 1700000001.5))
    assert again.journal(1).lost == rows
