from __future__ import annotations

import math
import tracemalloc
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.errors import JournalUnreadable, PreconditionFailed, StaleEpoch, StoreError
from skyplane_gateway.journal.document import DoneRow, FailedRow, Journal, UploadRow, journal_key
from skyplane_gateway.journal.orphans import Namer, find_transfers
from skyplane_gateway.journal.store import JournalFolder, Remains, Window, abort_intended
from skyplane_gateway.objects import StoreSpec, UploadInfo
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, read_object
from skyplane_gateway.stores.memory import create_bucket

KEY = "ab" * 16


@pytest.fixture(params=["memory", "file"])
def store(request: Any, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(StoreSpec("file", str(tmp_path)))
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


@pytest.fixture
def folder(store: ObjectStore) -> JournalFolder:
    return JournalFolder(store, "out/", KEY)


def journal(epoch: int = 1, sequence: int = 1, writer: str = "w", **more: Any) -> Journal:
    return Journal(KEY, epoch, "r", 1, writer=writer, sequence=sequence, **more)


def test_written_again_and_again(folder: JournalFolder) -> None:
    etag = None
    for sequence in range(1, 4):
        etag = folder.write(journal(sequence=sequence), etag)
    (stored,) = folder.read().readable
    assert (stored.journal, stored.etag) == (journal(sequence=3), etag)


def test_an_answer_that_was_lost_does_no_harm(folder: JournalFolder) -> None:
    """The writer knows neither whether it was written nor its etag."""
    folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=2), None)
    assert folder.read().readable[0].journal.sequence == 2


def test_clearing_up_holds_one_journal_at_a_time(folder: JournalFolder) -> None:
    """It held those of all epochs, and there is one for every retry."""
    done = tuple(DoneRow(f"{number:0100d}", "e" * 32, "s", 1, 1) for number in range(3000))

    def peak_bytes(epochs: int) -> int:
        for epoch in range(1, epochs + 1):
            folder.write(journal(epoch, done=done), None)
        tracemalloc.start()
        folder.clear(epochs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    one, eight = peak_bytes(1), peak_bytes(8)
    assert folder.rows() == []
    assert eight < 2 * one


def test_of_older_journals_a_lead_is_told_their_uploads_alone(folder: JournalFolder) -> None:
    upload = UploadRow("k", "id", "s", "v", 2, 1)
    done = DoneRow("d", "e", "v", 1, 2)
    for epoch, rule in ((1, "r"), (2, "r"), (3, "other")):
        one = replace(
            journal(epoch=epoch), rule=rule, done=(done,), begun=("k",),
            failed=(FailedRow("f", "c"),), failed_count=1, uploads=(upload,), through="a",
        )  # fmt: skip
        folder.write(one, None)
    first, newest, other = (row.journal for row in folder.read(rule="r").readable)
    assert (newest.done, newest.begun, len(newest.failed)) == ((done,), ("k",), 1)
    for row in (first, other):
        assert (row.done, row.begun, row.failed) == ((), (), ())
    assert [row.uploads for row in (first, newest, other)] == [(upload,)] * 3
    # What is stored stays as it is.
    assert all(row.journal.done for row in folder.read().readable)


def test_a_repetition_that_comes_late_does_not_undo_a_newer_one(folder: JournalFolder) -> None:
    first = folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=2), first)
    with pytest.raises(StaleEpoch):
        folder.write(journal(sequence=1), None)
    assert folder.read().readable[0].journal.sequence == 2


def test_two_leads_of_one_epoch_do_not_share_a_journal(folder: JournalFolder) -> None:
    folder.write(journal(writer="one"), None)
    with pytest.raises(StaleEpoch, match="another lead"):
        folder.write(journal(writer="other", sequence=2), None)


def test_an_older_epoch_is_refused_once_a_newer_one_has_a_journal(folder: JournalFolder) -> None:
    old = folder.write(journal(epoch=1), None)
    folder.write(journal(epoch=2, writer="n"), None)
    with pytest.raises(StaleEpoch):
        folder.write(journal(epoch=1, sequence=2), old)
    with pytest.raises(StaleEpoch):
        folder.read(seal_before=1)


def test_a_sealed_journal_is_written_by_nobody(folder: JournalFolder) -> None:
    """Even by a write that passed the look at newer epochs before it was sealed."""
    old = folder.write(journal(epoch=1), None)
    (stored,) = folder.read(seal_before=2).readable
    assert stored.journal == journal(epoch=1).sealed()
    for known in (old, None):
        with pytest.raises(StaleEpoch, match="sealed"):
            folder.write(journal(epoch=1, sequence=2), known)
    assert folder.read(seal_before=2).readable == (stored,)


def test_a_seal_loses_nothing_that_is_written_meanwhile(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old lead gets one more write through, between the look and the seal."""
    folder = JournalFolder(store, "out/", KEY)
    etag = folder.write(journal(sequence=1), None)
    put, late = store.put, [journal(sequence=2)]

    def overtaken(*arguments: Any, **more: Any) -> Any:
        if late:
            JournalFolder(store, "out/", KEY).write(late.pop(), etag)
        return put(*arguments, **more)

    monkeypatch.setattr(store, "put", overtaken)
    (stored,) = folder.read(seal_before=2).readable
    assert stored.journal == journal(sequence=2).sealed()


def test_a_journal_that_cannot_be_read_is_passed_over(
    store: ObjectStore, folder: JournalFolder
) -> None:
    store.put(journal_key("out/", KEY, 1), b"{}")
    folder.write(journal(epoch=2), None)
    assert [row.journal.epoch for row in folder.read(seal_before=3).readable] == [2]


def test_deleting_spares_newer_epochs_and_other_transfers(
    store: ObjectStore, folder: JournalFolder
) -> None:
    other = JournalFolder(store, "out/", "cd" * 16)
    other.write(replace(journal(), transfer_key="cd" * 16), None)
    for epoch in (1, 2, 3):
        folder.write(journal(epoch=epoch), None)
    folder.delete(2)
    assert [row.journal.epoch for row in folder.read().readable] == [3]
    folder.delete(3)
    folder.delete(3)
    assert folder.read().readable == ()
    assert len(other.read().readable) == 1


def test_nothing_is_left_of_the_last_journal_in_a_file_store(tmp_path: Path) -> None:
    store = open_store(StoreSpec("file", str(tmp_path)))
    store.put("out/kept", b"x")
    folder = JournalFolder(store, "out/", KEY)
    folder.write(journal(), None)
    folder.delete(1)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "kept"]


def test_what_journals_name_is_aborted_and_nothing_else(
    store: ObjectStore, folder: JournalFolder
) -> None:
    ids = {key: store.create_upload(key) for key in ("out/a", "out/b", "out/bb", "out/c")}
    rows = tuple(
        UploadRow(key, upload_id, key, "v", 1, 1)
        for key, upload_id in (("out/a", ids["out/a"]), ("out/b", None))
    )
    folder.write(journal(uploads=rows), None)
    assert folder.remove(1) == Remains()
    assert {row.key for row in store.list_uploads("out/")} == {"out/bb", "out/c"}


def test_a_lead_whose_journal_was_removed_is_over(folder: JournalFolder) -> None:
    """A newer one has succeeded, or a sweep took it for dead; it must not begin anew."""
    etag = folder.write(journal(sequence=1), None)
    folder.delete(1)
    with pytest.raises(StaleEpoch, match="was removed"):
        folder.write(journal(sequence=2), etag)
    assert folder.read().readable == ()


def test_who_clears_up_leaves_all_to_a_newer_epoch(
    store: ObjectStore, folder: JournalFolder
) -> None:
    """Uploads pass from epoch to epoch under one id, so not even its own may be aborted."""
    upload = UploadRow("out/k", store.create_upload("out/k"), "k", "v", 10, 5)
    folder.write(replace(journal(), uploads=(upload,)), None)
    folder.write(replace(journal(), epoch=2, uploads=(upload,)), None)
    with pytest.raises(StaleEpoch, match="epoch 2 has a journal"):
        folder.clear(1)
    assert [row.upload_id for row in store.list_uploads("out/")] == [upload.upload_id]
    folder.clear(2)
    assert (list(store.list_uploads("out/")), folder.read().readable) == ([], ())


def spoil(store: ObjectStore, epoch: int) -> None:
    store.put(journal_key("out/", KEY, epoch), b'{"schema_version": 1, "through": "')


def test_a_journal_that_cannot_be_read_is_told_of(
    store: ObjectStore, folder: JournalFolder
) -> None:
    for epoch in (1, 2, 3):
        folder.write(journal(epoch=epoch), None)
    spoil(store, 2)
    for found in (folder.read(), folder.read(seal_before=4)):
        assert [row.journal.epoch for row in found.readable] == [1, 3]
        assert list(found.unreadable) == [2]
        assert "not JSON" in found.unreadable[2]
    wrong = {named.key: named.wrong for named in folder.uploads()}
    assert [bool(text) for text in wrong.values()] == [False, True, False]
    assert "not JSON" in wrong[journal_key("out/", KEY, 2)]


def test_what_a_journal_names_that_cannot_be_read_is_left_alone(
    store: ObjectStore, folder: JournalFolder
) -> None:
    """A cancel removed it, and nobody knew of its uploads any more, nor of its objects."""
    known, unknown = store.create_upload("out/k"), store.create_upload("out/l")
    upload = UploadRow("out/k", known, "k", "v", 10, 5)
    folder.write(journal(epoch=1, uploads=(upload,)), None)
    folder.write(journal(epoch=2), None)
    folder.write(journal(epoch=3), None)
    spoil(store, 2)
    with pytest.raises(JournalUnreadable, match="0000000002' cannot be read"):
        folder.clear(3)
    assert [row.upload_id for row in store.list_uploads("out/")] == [unknown]
    # The others would speak for it, were they left.
    assert [row.key for row in folder.rows()] == [journal_key("out/", KEY, 2)]


def test_an_intent_that_a_lost_journal_may_name_keeps_its_own(
    store: ObjectStore, folder: JournalFolder
) -> None:
    """Another transfer's journal cannot be read, and the upload may be that one's."""
    store.put(journal_key("", "cd" * 16, 1), b"{")
    upload_id = store.create_upload("out/k")
    folder.write(journal(uploads=(UploadRow("out/k", None, "k", "v", 10, 5),)), None)
    with pytest.raises(JournalUnreadable, match="cdcd"):
        abort_intended(store, "out/k", Window(0.0, math.inf), own=())
    with pytest.raises(
        StoreError, match=r"^an upload of 'out/k' stays open, so the journals stay: .*cdcd"
    ):
        folder.clear(1)
    assert [row.upload_id for row in store.list_uploads("out/")] == [upload_id]
    assert len(folder.rows()) == 1


def test_an_intent_that_its_own_lost_journal_may_name_goes(
    store: ObjectStore, folder: JournalFolder
) -> None:
    """All of it was to go; and nothing but that journal may stay to speak for it."""
    store.create_upload("out/k")
    folder.write(journal(uploads=(UploadRow("out/k", None, "k", "v", 10, 5),)), None)
    folder.write(journal(epoch=2), None)
    spoil(store, 2)
    with pytest.raises(JournalUnreadable, match="0000000002"):
        folder.clear(2)
    assert list(store.list_uploads("out/")) == []
    assert [row.key for row in folder.rows()] == [journal_key("out/", KEY, 2)]


def test_journals_are_those_that_lie_in_the_transfers_folder(
    store: ObjectStore, folder: JournalFolder
) -> None:
    folder.write(journal(), None)
    (row,) = folder.rows()
    store.put(row.key.replace("0000000001", "deep/0000000002"), b"somebody else's")
    assert folder.rows() == [row]
    folder.clear(1)
    assert [left.key.rpartition("/")[2] for left in store.list("")] == ["0000000002"]


def test_a_lead_whose_journal_was_spoilt_says_so(store: ObjectStore, folder: JournalFolder) -> None:
    folder.write(journal(), None)
    spoil(store, 1)
    for known in (None, "another"):
        with pytest.raises(StaleEpoch, match=r"epoch 1 cannot go on: .* cannot be read"):
            folder.write(journal(sequence=2), known)


@pytest.fixture
def misreadings(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the next readings of journals find instead of what is there."""
    read, wrong = read_object, list[bytes]()

    def misread(*arguments: Any, **more: Any) -> Any:
        info, body = read(*arguments, **more)
        return info, wrong.pop() if wrong else body

    monkeypatch.setattr("skyplane_gateway.journal.store.read_object", misread)
    return wrong


def test_what_was_read_wrongly_once_is_read_again(
    folder: JournalFolder, misreadings: list[bytes]
) -> None:
    folder.write(journal(), None)
    misreadings.append(b"{")
    found = folder.read(seal_before=2)
    assert ([row.journal.epoch for row in found.readable], found.unreadable) == ([1], {})


@pytest.fixture
def named(store: ObjectStore, folder: JournalFolder) -> UploadInfo:
    """An upload that a journal names."""
    upload_id = store.create_upload("out/k")
    folder.write(journal(uploads=(UploadRow("out/k", upload_id, "k", "v", 10, 5),)), None)
    (row,) = store.list_uploads("out/")
    return row


def test_a_journal_that_is_removed_was_read(
    store: ObjectStore, folder: JournalFolder, named: UploadInfo, misreadings: list[bytes]
) -> None:
    """The sweep looked, read wrongly when it removed, and left an upload without a name."""
    misreadings.extend([b"{", b"{"])
    (left,) = find_transfers(store, "out/")
    assert len(left.remove(store).unreadable) == 1
    assert (list(store.list_uploads("out/")), len(folder.rows())) == ([named], 1)
    assert left.remove(store) == Remains()
    assert (list(store.list_uploads("out/")), folder.rows()) == ([], [])


def test_names_and_doubts_are_of_one_reading(
    store: ObjectStore, named: UploadInfo, misreadings: list[bytes]
) -> None:
    """The first reading found no names, the second nothing wrong: an orphan, it seemed."""
    misreadings.extend([b"{", b"{"])
    namer = Namer(store)
    assert not namer.names(named)
    assert namer.unreadable(named) is not None


def test_a_journal_too_long_to_be_read_stops_nobody_from_clearing_up(
    store: ObjectStore,
    folder: JournalFolder,
    named: UploadInfo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A newer release may write such ones."""
    folder.write(replace(journal(epoch=2), uploads=()), None)
    long = journal_key("out/", KEY, 2)
    store.put(long, bytes(2000))
    monkeypatch.setattr("skyplane_gateway.journal.store.MAX_JOURNAL_BYTES", 1000)
    assert list(folder.read(seal_before=3).unreadable) == [2]
    with pytest.raises(JournalUnreadable, match="2000 bytes, more than"):
        folder.clear(2)
    assert list(store.list_uploads("out/")) == []
    assert [row.key for row in folder.rows()] == [long]


def test_a_journal_that_never_rests_is_an_error_that_may_pass(
    store: ObjectStore, folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(journal(), None)

    def refused(*_: Any, **__: Any) -> Any:
        raise PreconditionFailed("it changed")

    monkeypatch.setattr(store, "put", refused)
    with pytest.raises(PreconditionFailed) as caught:
        folder.read(seal_before=2)
    assert not caught.value.is_permanent
