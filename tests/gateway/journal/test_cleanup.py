from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.journal.samples import KEY, journal, spoil, upload

from skyplane_gateway.common.errors import JournalUnreadable, StaleEpoch, StoreError
from skyplane_gateway.journal.cleanup import (
    CleanupResult,
    TimeWindow,
    abort_intended,
    clear_journals,
    remove_journals,
)
from skyplane_gateway.journal.document import DoneRow, LostRow, journal_key
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.stores.base import ObjectStore

INTENT = upload("out/k", None)


def ids(store: ObjectStore) -> list[str]:
    return [row.upload_id for row in store.list_uploads("out/")]


def test_uploads_that_journals_name_or_intend_are_aborted_and_no_others(
    store: ObjectStore, folder: JournalFolder
) -> None:
    begun = {key: store.create_upload(key) for key in ("out/a", "out/b", "out/bb", "out/c")}
    rows = (upload("out/a", begun["out/a"]), upload("out/b", None))
    folder.write(journal(uploads=rows), None)
    assert remove_journals(folder, 1) == CleanupResult()
    assert {row.key for row in store.list_uploads("out/")} == {"out/bb", "out/c"}
    assert folder.rows() == []


def test_a_newer_epoch_keeps_everything(store: ObjectStore, folder: JournalFolder) -> None:
    """An upload keeps its id from epoch to epoch, so not even the older one's may be aborted."""
    opened = upload("out/k", store.create_upload("out/k"))
    for epoch in (1, 2):
        folder.write(journal(epoch, uploads=(opened,)), None)
    with pytest.raises(StaleEpoch, match="epoch 2 has a journal"):
        clear_journals(folder, 1)
    assert ids(store) == [opened.upload_id]
    clear_journals(folder, 2)
    assert (ids(store), folder.read().readable) == ([], ())


def test_the_journal_of_a_success_that_names_no_upload_needs_no_look(
    folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = folder.write(journal(sequence=1), None)
    folder.require_newest(1)
    folder.write(replace(journal(sequence=2), is_complete=True), etag)
    with monkeypatch.context() as patched:
        patched.setattr(JournalFolder, "rows", lambda *_: pytest.fail("it was listed"))
        clear_journals(folder, 1)
    assert folder.rows() == []


@pytest.mark.parametrize("change", [{"uploads": (INTENT,)}, {"is_complete": False}])
def test_any_other_journal_is_looked_at(folder: JournalFolder, change: dict[str, Any]) -> None:
    etag = folder.write(journal(sequence=1), None)
    folder.require_newest(1)
    folder.write(replace(journal(sequence=2), **{"is_complete": True, **change}), etag)
    assert not folder.delete_concluded(1)
    clear_journals(folder, 1)
    assert folder.rows() == []


def test_a_success_beside_other_journals_is_looked_at(folder: JournalFolder) -> None:
    """They may name uploads."""
    folder.write(journal(epoch=1, uploads=(INTENT,)), None)
    folder.write(replace(journal(epoch=2), is_complete=True), None)
    folder.require_newest(2)
    assert not folder.delete_concluded(2)
    clear_journals(folder, 2)
    assert folder.rows() == []


def test_uploads_of_requests_without_an_answer_are_aborted(
    store: ObjectStore, folder: JournalFolder
) -> None:
    store.create_upload("out/k")
    (begun,) = store.list_uploads("out/")
    folder.write(journal(lost=(LostRow("out/k", begun.initiated, begun.initiated),)), None)
    assert remove_journals(folder, 1) == CleanupResult()
    assert ids(store) == []


def test_one_journal_is_in_memory_at_a_time(folder: JournalFolder) -> None:
    """There is a journal for every retry."""
    done = tuple(DoneRow(f"{number:0100d}", "e" * 32, "s", 1, 1) for number in range(500))

    def peak_bytes(epochs: int) -> int:
        for epoch in range(1, epochs + 1):
            folder.write(journal(epoch, done=done), None)
        tracemalloc.start()
        clear_journals(folder, epochs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    one, six = peak_bytes(1), peak_bytes(6)
    assert six < 2 * one


def test_an_unreadable_journal_stays_with_the_uploads_that_only_it_names(
    store: ObjectStore, folder: JournalFolder
) -> None:
    known, unknown = store.create_upload("out/k"), store.create_upload("out/l")
    folder.write(journal(epoch=1, uploads=(upload("out/k", known),)), None)
    folder.write(journal(epoch=2), None)
    folder.write(journal(epoch=3), None)
    spoil(store, 2)
    with pytest.raises(JournalUnreadable, match="0000000002' cannot be read"):
        clear_journals(folder, 3)
    assert ids(store) == [unknown]
    assert [row.key for row in folder.rows()] == [journal_key("out/", KEY, 2)]


def test_an_intended_upload_that_another_unreadable_journal_may_name_stays(
    store: ObjectStore, folder: JournalFolder
) -> None:
    store.put(journal_key("", "cd" * 16, 1), b"{")
    upload_id = store.create_upload("out/k")
    folder.write(journal(uploads=(INTENT,)), None)
    with pytest.raises(JournalUnreadable, match="cdcd"):
        abort_intended(store, "out/k", TimeWindow(0.0, math.inf), own=())
    with pytest.raises(
        StoreError, match=r"^an upload of 'out/k' stays open, so the journals stay: .*cdcd"
    ):
        clear_journals(folder, 1)
    assert ids(store) == [upload_id]
    assert len(folder.rows()) == 1


def test_an_intended_upload_is_aborted_though_an_own_journal_is_unreadable(
    store: ObjectStore, folder: JournalFolder
) -> None:
    store.create_upload("out/k")
    folder.write(journal(uploads=(INTENT,)), None)
    folder.write(journal(epoch=2), None)
    spoil(store, 2)
    with pytest.raises(JournalUnreadable, match="0000000002"):
        clear_journals(folder, 2)
    assert ids(store) == []
    assert [row.key for row in folder.rows()] == [journal_key("out/", KEY, 2)]


def test_a_journal_is_removed_only_after_it_was_read(
    store: ObjectStore, folder: JournalFolder, misreadings: list[bytes]
) -> None:
    """Else the sweep could leave an upload that no journal names."""
    opened = upload("out/k", store.create_upload("out/k"))
    folder.write(journal(uploads=(opened,)), None)
    misreadings.extend([b"{", b"{"])
    assert len(remove_journals(folder, 1).unreadable) == 1
    assert (ids(store), len(folder.rows())) == ([opened.upload_id], 1)
    assert remove_journals(folder, 1) == CleanupResult()
    assert (ids(store), folder.rows()) == ([], [])


def test_a_journal_that_is_too_long_to_read_does_not_stop_the_cleanup(
    store: ObjectStore, folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer release may write longer ones."""
    folder.write(journal(uploads=(upload("out/k", store.create_upload("out/k")),)), None)
    folder.write(replace(journal(epoch=2), uploads=()), None)
    long = journal_key("out/", KEY, 2)
    store.put(long, bytes(2000))
    monkeypatch.setattr("skyplane_gateway.journal.journal_folder.MAX_JOURNAL_BYTES", 1000)
    assert list(folder.read(seal_before=3).unreadable) == [2]
    with pytest.raises(JournalUnreadable, match="2000 bytes, more than"):
        clear_journals(folder, 2)
    assert ids(store) == []
    assert [row.key for row in folder.rows()] == [long]
