from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.journal.samples import KEY, journal, spoil, upload

from skyplane_gateway.common.errors import PreconditionFailed, StaleEpoch
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.document import DoneRow, FailedRow, journal_key
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore


def test_a_journal_is_written_again_and_again(folder: JournalFolder) -> None:
    etag = None
    for sequence in range(1, 4):
        etag = folder.write(journal(sequence=sequence), etag)
    (stored,) = folder.read().readable
    assert (stored.journal, stored.etag) == (journal(sequence=3), etag)


def test_a_lost_answer_does_no_harm(folder: JournalFolder) -> None:
    """The writer knows neither whether the journal was written nor its etag."""
    folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=2), None)
    assert folder.read().readable[0].journal.sequence == 2


def test_a_late_repetition_does_not_undo_a_newer_write(folder: JournalFolder) -> None:
    first = folder.write(journal(sequence=1), None)
    folder.write(journal(sequence=2), first)
    with pytest.raises(StaleEpoch):
        folder.write(journal(sequence=1), None)
    assert folder.read().readable[0].journal.sequence == 2


def test_older_journals_are_read_without_their_ended_keys(folder: JournalFolder) -> None:
    opened, done = upload("k", "id"), DoneRow("d", "e", "v", 1, 2)
    for epoch, rule in ((1, "r"), (2, "r"), (3, "other")):
        one = replace(
            journal(epoch=epoch), rule=rule, done=(done,), begun=("k",),
            failed=(FailedRow("f", "c"),), failed_count=1, uploads=(opened,), through="a",
        )  # fmt: skip
        folder.write(one, None)
    first, newest, other = (row.journal for row in folder.read(rule="r").readable)
    assert (newest.done, newest.begun, len(newest.failed)) == ((done,), ("k",), 1)
    for row in (first, other):
        assert (row.done, row.begun, row.failed) == ((), (), ())
    assert [row.uploads for row in (first, newest, other)] == [(opened,)] * 3
    # The stored journals do not change.
    assert all(row.journal.done for row in folder.read().readable)


def test_two_leads_of_one_epoch_do_not_share_a_journal(folder: JournalFolder) -> None:
    folder.write(journal(writer="one"), None)
    with pytest.raises(StaleEpoch, match="another lead"):
        folder.write(journal(writer="other", sequence=2), None)


def test_an_older_epoch_is_refused_once_a_newer_one_has_a_journal(folder: JournalFolder) -> None:
    folder.write(journal(epoch=1), None)
    folder.require_newest(1)
    folder.write(journal(epoch=2, writer="n"), None)
    with pytest.raises(StaleEpoch):
        folder.require_newest(1)
    with pytest.raises(StaleEpoch):
        folder.read(seal_before=1)


def test_a_sealed_journal_cannot_be_written(folder: JournalFolder) -> None:
    """Not even by a write that looked for newer epochs before the seal."""
    old = folder.write(journal(epoch=1), None)
    (stored,) = folder.read(seal_before=2).readable
    assert stored.journal == journal(epoch=1).sealed()
    for known in (old, None):
        with pytest.raises(StaleEpoch, match="sealed"):
            folder.write(journal(epoch=1, sequence=2), known)
    assert folder.read(seal_before=2).readable == (stored,)


def test_a_seal_loses_no_write_that_comes_meanwhile(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old lead writes once more between the look and the seal."""
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


def test_a_lead_whose_journal_was_removed_stops(folder: JournalFolder) -> None:
    """A newer lead has succeeded, or a sweep took this one for dead; it must not start over."""
    etag = folder.write(journal(sequence=1), None)
    folder.delete(1)
    with pytest.raises(StaleEpoch, match="was removed"):
        folder.write(journal(sequence=2), etag)
    assert folder.read().readable == ()


def test_a_lead_whose_journal_was_damaged_stops(store: ObjectStore, folder: JournalFolder) -> None:
    folder.write(journal(), None)
    spoil(store, 1)
    for known in (None, "another"):
        with pytest.raises(StaleEpoch, match=r"epoch 1 cannot continue: .* cannot be read"):
            folder.write(journal(sequence=2), known)


def test_unreadable_journals_are_named_and_the_others_read(
    store: ObjectStore, folder: JournalFolder
) -> None:
    for epoch in (1, 2, 3):
        folder.write(journal(epoch=epoch), None)
    spoil(store, 2)
    for found in (folder.read(), folder.read(seal_before=4)):
        assert [row.journal.epoch for row in found.readable] == [1, 3]
        assert list(found.unreadable) == [2]
        assert "not JSON" in found.unreadable[2]
    wrong = {named.key: named.wrong for named in folder.uploads(folder.rows())}
    assert [bool(text) for text in wrong.values()] == [False, True, False]
    assert "not JSON" in wrong[journal_key("out/", KEY, 2)]


def test_a_journal_that_was_misread_once_is_read_again(
    folder: JournalFolder, misreadings: list[bytes]
) -> None:
    folder.write(journal(), None)
    misreadings.append(b"{")
    found = folder.read(seal_before=2)
    assert ([row.journal.epoch for row in found.readable], found.unreadable) == ([1], {})


def test_a_journal_that_changes_all_the_time_is_a_temporary_error(
    store: ObjectStore, folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(journal(), None)

    def refused(*_: Any, **__: Any) -> Any:
        raise PreconditionFailed("it changed")

    monkeypatch.setattr(store, "put", refused)
    with pytest.raises(PreconditionFailed) as caught:
        folder.read(seal_before=2)
    assert not caught.value.is_permanent


def test_only_objects_in_the_transfers_folder_are_its_journals(
    store: ObjectStore, folder: JournalFolder
) -> None:
    folder.write(journal(), None)
    (row,) = folder.rows()
    store.put(row.key.replace("0000000001", "deep/0000000002"), b"another writer's")
    assert folder.rows() == [row]


def test_delete_spares_newer_epochs_and_other_transfers(
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


def test_the_last_journal_leaves_no_folder_in_a_file_store(tmp_path: Path) -> None:
    store = open_store(StoreSpec("file", str(tmp_path)))
    store.put("out/kept", b"x")
    folder = JournalFolder(store, "out/", KEY)
    folder.write(journal(), None)
    folder.delete(1)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "kept"]
