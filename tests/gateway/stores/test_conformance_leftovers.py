"""Journals and uploads of failed transfers are found and removed in every store."""

from __future__ import annotations

import time
from typing import Any

from skyplane_gateway.journal.cleanup import CleanupResult
from skyplane_gateway.journal.document import Journal, UploadRow
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.orphans import JournalIndex, find_transfers, old_uploads

ONE, OTHER = "ab" * 16, "cd" * 16


def left_by(
    harness: Any, folder: str, transfer_key: str, *keys: str, epoch: int = 1, known: bool = True
) -> dict[str, str]:
    """A transfer that failed: its journal, and an open upload with a part for each key."""
    store = harness.shared
    ids = {folder + key: store.create_upload(folder + key) for key in keys}
    rows = tuple(
        UploadRow(key, upload_id if known else None, key, "v", 1, 1)
        for key, upload_id in ids.items()
    )
    for key, upload_id in ids.items():
        harness.put_parts(key, upload_id, [b"x"])
    journal = Journal(transfer_key, epoch, "r", 1, writer="w", sequence=1, uploads=rows)
    JournalFolder(store, folder, transfer_key).write(journal, None)
    return ids


def places(harness: Any, folder: str, **more: Any) -> list[tuple[str, str, int]]:
    found = find_transfers(harness.shared, folder, **more)
    return [(left.folder, left.transfer_key, left.epoch) for left in found]


def test_journals_are_found_at_any_depth(harness: Any) -> None:
    began = time.time()
    harness.fill(["data", "out/a", "out/skyplane/jobs/x", "out/deep/b"], b"x")
    left_by(harness, "", ONE, "k")
    left_by(harness, "out/deep/er/", ONE, "k")
    left_by(harness, "out/", ONE, "k")
    left_by(harness, "out/", ONE, epoch=12)
    left_by(harness, "out/", OTHER, "k")
    assert places(harness, "") == [
        ("", ONE, 1),
        ("out/", ONE, 12),
        ("out/", OTHER, 1),
        ("out/deep/er/", ONE, 1),
    ]
    assert places(harness, "out/deep/") == [("out/deep/er/", ONE, 1)]
    assert places(harness, "out/", recursive=False) == [("out/", ONE, 12), ("out/", OTHER, 1)]
    assert places(harness, "outer/") == []
    # Its age is that of the newest journal; servers count in seconds.
    assert all(
        began - 2 <= left.written_unix_s <= time.time() + 2
        for left in find_transfers(harness.shared, "")
    )


def test_what_a_transfer_left_is_removed_and_nothing_else(harness: Any) -> None:
    store = harness.shared
    harness.fill(["out/a"], b"x")
    left_by(harness, "out/", ONE, "b", "sub/c")
    intended = left_by(harness, "out/", OTHER, "d", "e", known=False)
    foreign = store.create_upload("out/f")
    mine, other = find_transfers(store, "out/")
    assert mine.is_as_listed(store)
    assert mine.remove(store) == CleanupResult()
    assert mine.remove(store) == CleanupResult()
    assert {row.key for row in store.list_uploads("")} == {*intended, "out/f"}
    # Those that were only intended go by their keys.
    assert other.remove(store) == CleanupResult()
    assert [row.upload_id for row in store.list_uploads("")] == [foreign]
    assert [row.key for row in store.list("")] == ["out/a"]


def test_a_transfer_that_goes_on_after_the_look_keeps_what_it_writes(harness: Any) -> None:
    store = harness.shared
    left_by(harness, "out/", ONE, "a")
    (seen,) = find_transfers(store, "out/")
    newer = left_by(harness, "out/", ONE, "b", epoch=2)
    assert not seen.is_as_listed(store)
    assert seen.remove(store) == CleanupResult()
    assert {row.key for row in store.list_uploads("")} == set(newer)
    assert places(harness, "out/") == [("out/", ONE, 2)]


def test_uploads_are_old_by_the_stores_clock(harness: Any) -> None:
    store = harness.shared
    store.create_upload("out/a")
    (upload,) = store.list_uploads("out/")
    assert [row.key for row in old_uploads(store, "out/", upload.initiated + 1)] == ["out/a"]
    assert old_uploads(store, "out/", upload.initiated) == []
    assert old_uploads(store, "other/", upload.initiated + 1) == []


def test_an_upload_is_named_by_a_journal_of_a_folder_above_it(harness: Any) -> None:
    store = harness.shared
    left_by(harness, "", ONE, "out/sub/a")
    left_by(harness, "out/", ONE, "sub/deep/a")
    left_by(harness, "out/sub/", OTHER, "b", known=False)
    store.create_upload("out/sub/c")
    again = store.create_upload("out/sub/deep/a")
    index = JournalIndex(store)
    named = {(row.key, row.upload_id): index.names(row) for row in store.list_uploads("out/sub/")}
    assert [key for (key, _), is_named in sorted(named.items()) if is_named] == [
        "out/sub/a",
        "out/sub/b",
        "out/sub/deep/a",
    ]
    assert not named["out/sub/deep/a", again]


def test_a_journal_that_cannot_be_read_may_name_what_is_below_it(harness: Any) -> None:
    store = harness.shared
    left_by(harness, "out/", ONE)
    key = f"out/.skyplane/jobs/{OTHER}/0000000007"
    store.put(key, b'{"schema_version": 99}')
    store.create_upload("out/a")
    store.create_upload("outside")
    index = JournalIndex(store)
    unread = {row.key: index.unreadable(row) for row in store.list_uploads("")}
    assert unread == {"out/a": key, "outside": None}
    (_, newer) = find_transfers(store, "out/")
    assert list(newer.named(store).unreadable) == [key]
