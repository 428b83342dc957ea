"""A sink removes and aborts only its own objects and uploads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.journal.samples import KEY, upload
from tests.gateway.sink.wrapped import Wrapped, flipped

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    JournalUnreadable,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    ReadBackMismatch,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition
from skyplane_gateway.common.schema import encode
from skyplane_gateway.journal.cleanup import CleanupResult
from skyplane_gateway.journal.document import Journal, UploadRow, journal_key
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.orphans import find_transfers
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores.base import ObjectStore

OTHER_KEY = "cd" * 16
BODY = bytes(range(256)) * 8
CRC = crc32c(BODY)


class Damaged:
    """A body of which one byte is damaged on its way to us."""

    def __init__(self, reader: Any) -> None:
        self._reader, self._is_first = reader, True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def readinto(self, buffer: memoryview) -> int:
        count = int(self._reader.readinto(buffer))
        if self._is_first and count:
            buffer[0] ^= 1
            self._is_first = False
        return count


def put(destination: Destination, fence: Precondition = IF_ABSENT) -> Any:
    return destination.put("k", BODY, CRC, ObjectAttributes(), fence)


def test_one_damaged_read_back_removes_nothing(memory: ObjectStore) -> None:
    """Another sending of the object has been acknowledged by then."""
    second = Destination(memory, "stored")
    acknowledged: list[Any] = []

    def read(original: Any, *arguments: Any, **more: Any) -> Any:
        if acknowledged:
            return original(*arguments, **more)
        acknowledged.append(put(second))
        return Damaged(original(*arguments, **more))

    first = put(Destination(Wrapped(memory, trusted=False, read=read), "stored"))
    assert [first.etag] == [row.etag for row in acknowledged]
    assert [row.etag for row in memory.list("")] == [first.etag]


def test_what_is_read_damaged_twice_is_removed(memory: ObjectStore) -> None:
    def read(original: Any, *arguments: Any, **more: Any) -> Any:
        return Damaged(original(*arguments, **more))

    with pytest.raises(ReadBackMismatch):
        put(Destination(Wrapped(memory, trusted=False, read=read), "stored"))
    assert list(memory.list("")) == []


def test_a_bad_object_is_removed_only_while_it_is_there(memory: ObjectStore) -> None:
    """A newer lead replaces it as the one that it listed, while the old sink reads it."""
    good: list[str] = []

    def read(original: Any, key: str, **more: Any) -> Any:
        reader = original(key, **more)
        if good:
            return reader
        fence = Precondition(if_match=memory.head("k").etag)
        good.append(put(Destination(memory, "stored"), fence).etag)
        return reader

    old = Destination(Wrapped(memory, trusted=False, put=flipped, read=read), "stored")
    with pytest.raises(PreconditionFailed):
        put(old)
    assert [row.etag for row in memory.list("")] == good


def test_a_bad_object_that_is_replaced_before_it_is_removed_stays(memory: ObjectStore) -> None:
    """Both looks found the bad one."""
    looks: list[str] = []

    def head(original: Any, key: str) -> Any:
        if not looks:
            looks.append(original(key).etag)
            put(Destination(memory, "stored"), Precondition(if_match=looks[0]))
        return original(key)

    old = Destination(Wrapped(memory, trusted=False, put=flipped, head=head), "stored")
    with pytest.raises(PreconditionFailed) as caught:
        put(old)
    assert not caught.value.is_permanent
    assert memory.head("k").crc32c == CRC
    # The repetition meets the good one.
    assert put(Destination(memory, "stored")).crc32c == CRC


def test_what_is_put_in_the_place_of_a_bad_object_at_the_last_moment_stays(
    memory: ObjectStore,
) -> None:
    """It came after the look, and was deleted for ours."""

    def delete(original: Any, key: str, **more: Any) -> None:
        memory.put(key, b"somebody else's")
        original(key, **more)

    old = Destination(Wrapped(memory, trusted=False, put=flipped, delete=delete), "stored")
    with pytest.raises(PreconditionFailed, match="written over") as caught:
        put(old)
    assert not caught.value.is_permanent
    assert memory.head("k").size_bytes == len(b"somebody else's")


def test_a_bad_object_that_is_gone_already_is_missed_by_nobody(memory: ObjectStore) -> None:
    def head(original: Any, key: str) -> Any:
        memory.delete(key)
        return original(key)

    with pytest.raises(ReadBackMismatch):
        put(Destination(Wrapped(memory, trusted=False, put=flipped, head=head), "stored"))


@pytest.mark.parametrize("verb", ["put", "complete", "head"])
def test_reread_believes_no_store_of_what_an_earlier_sending_wrote(
    memory: ObjectStore, verb: str
) -> None:
    """A repetition that meets an object reads it, as the first one would have done."""
    memory.put("k", b"\1" + BODY[1:])

    def lying(original: Any, key: str) -> Any:
        return replace(original(key), crc32c=CRC)

    destination = Destination(Wrapped(memory, head=lying), "reread")
    if verb == "put":
        with pytest.raises(PreconditionFailed):
            put(destination)
    elif verb == "complete":
        arguments = {"key": "k", "upload_id": "gone", "parts": [], "size_bytes": len(BODY)}
        fence = {"precondition": encode(IF_ABSENT), "crc32c": CRC}
        with pytest.raises(NotFound):
            destination.run("complete", arguments | fence)
    else:
        found = destination.run("head", {"key": "k", "checksum": True})["object"]
        assert found["crc32c"] == memory.head("k").crc32c
    assert memory.head("k").crc32c != CRC


# -- attributes

CSV = ObjectAttributes(content_type="text/csv", metadata=(("owner", "finance"),))


@pytest.mark.parametrize("there", [CSV, ObjectAttributes(content_type="binary/octet-stream")])
def test_a_completion_that_was_not_heard_of_is_known_by_its_attributes_too(
    memory: ObjectStore, there: ObjectAttributes
) -> None:
    """An older object of the same bytes was taken for ours, and kept its attributes."""
    memory.put("k", BODY, attributes=there)
    arguments = {"key": "k", "upload_id": "gone", "parts": [], "size_bytes": len(BODY)}
    ours = {"precondition": encode(IF_ABSENT), "crc32c": CRC, "attributes": CSV.to_dict()}
    destination = Destination(memory, "stored")
    if there == CSV:
        assert destination.run("complete", arguments | ours)["etag"] == memory.head("k").etag
    else:
        with pytest.raises(NotFound):
            destination.run("complete", arguments | ours)


def test_a_content_type_that_the_store_made_up_is_no_difference(memory: ObjectStore) -> None:
    """A file has none, and S3 gives one to every object: the repetition was refused."""

    def head(original: Any, key: str) -> Any:
        made_up = ObjectAttributes(content_type="binary/octet-stream")
        return replace(original(key), attributes=made_up)

    destination = Destination(Wrapped(memory, head=head), "stored")
    first = put(destination)
    assert put(destination).etag == first.etag
    with pytest.raises(PreconditionFailed):
        destination.put("k", BODY, CRC, CSV, IF_ABSENT)


# -- uploads that nobody has the id of


def write(store: ObjectStore, transfer_key: str, *uploads: UploadRow, epoch: int = 1) -> None:
    row = Journal(transfer_key, epoch, "r", 1, writer="w", sequence=1, uploads=uploads)
    JournalFolder(store, "out/", transfer_key).write(row, None)


def ids(store: ObjectStore) -> set[str]:
    return {row.upload_id for row in store.list_uploads("")}


def begun_at(store: ObjectStore, times: dict[str, float]) -> Any:
    """The store as if its uploads had been begun then."""

    def listed(original: Any, prefix: str) -> Any:
        return [replace(row, initiated=times[row.upload_id]) for row in original(prefix)]

    return Wrapped(store, list_uploads=listed)


def place(**more: Any) -> dict[str, Any]:
    return {"folder": "out/", "transfer_key": KEY, "epoch": 2, **more}


def test_beginning_an_upload_ends_no_other(memory: ObjectStore) -> None:
    """Nor does it look: the right to list uploads may be missing."""
    theirs = memory.create_upload("k")

    def denied(original: Any, prefix: str) -> Any:
        raise PermissionDenied("s3:ListBucketMultipartUploads")

    destination = Destination(Wrapped(memory, list_uploads=denied), "stored")
    order = {"key": "k", "attributes": None, "is_journaled": True}
    ours = destination.run("create", order)["upload_id"]
    assert ids(memory) == {theirs, ours}


def test_what_was_begun_since_it_was_asked_for_is_aborted(memory: ObjectStore) -> None:
    """Except the known upload and those that a journal names."""
    write(memory, KEY)
    written = JournalFolder(memory, "out/", KEY).rows()[-1].last_modified
    old, lost, ours, named = (memory.create_upload("out/k") for _ in range(4))
    longer = memory.create_upload("out/k2")
    write(memory, OTHER_KEY, upload("out/k", named))
    times = {old: written - 20, lost: written - 9, ours: written, named: written, longer: written}
    destination = Destination(begun_at(memory, times), "stored")
    destination.run("abort_intended", place(key="out/k", asked_s_ago=10.0, spared=ours))
    assert ids(memory) == {old, ours, named, longer}


@pytest.mark.parametrize("is_newest", [True, False])
def test_what_was_begun_before_it_was_asked_for_stays(memory: ObjectStore, is_newest: bool) -> None:
    """It counted from the last writing of the journal, which may lie as long before as that
    lies before now: uploads of other tools were aborted. Where the journal was written since,
    nothing is known but that: then rather too many than one too few."""
    write(memory, KEY)
    newest = JournalFolder(memory, "out/", KEY).rows()[-1]
    written = newest.last_modified
    older, theirs, lost = (memory.create_upload("out/k") for _ in range(3))
    times = {older: written - 60, theirs: written - 20, lost: written + 1}
    destination = Destination(begun_at(memory, times), "stored")
    since = {"journal_etag": newest.etag if is_newest else "older", "written_s_ago": 40.0}
    destination.run("abort_intended", place(key="out/k", asked_s_ago=40.0, **since))
    assert ids(memory) == ({older, theirs} if is_newest else {older})


def test_once_the_journals_are_gone_there_is_nothing_to_look_for(memory: ObjectStore) -> None:
    theirs = memory.create_upload("out/k")
    Destination(memory, "stored").run("abort_intended", place(key="out/k", asked_s_ago=10.0))
    assert ids(memory) == {theirs}


def test_who_may_not_list_uploads_is_not_failed_by_that(memory: ObjectStore) -> None:
    def denied(original: Any, prefix: str) -> Any:
        raise PermissionDenied("s3:ListBucketMultipartUploads")

    write(memory, KEY)
    destination = Destination(Wrapped(memory, list_uploads=denied), "stored")
    destination.run("abort_intended", place(key="out/k", noted_unix_s=1.0))
    with pytest.raises(PermissionDenied):
        # Else its lead would take it for done, and forget it.
        destination.run("abort_intended", place(key="out/k", asked_s_ago=1.0))


def test_a_store_that_does_not_answer_is_asked_again(memory: ObjectStore) -> None:
    def failing(original: Any, prefix: str) -> Any:
        raise StoreUnavailable("503")

    destination = Destination(Wrapped(memory, list_uploads=failing), "stored")
    with pytest.raises(StoreUnavailable):
        destination.run("abort_intended", place(key="out/k", noted_unix_s=1.0))


def test_its_own_spoilt_journal_keeps_no_upload_open(memory: ObjectStore) -> None:
    """Seed 208548158426: it might name it, it seemed, and in the end nothing did."""
    write(memory, KEY, epoch=1)
    write(memory, KEY, epoch=2)
    destination = Destination(memory, "stored")
    for epoch in (1, 2):
        memory.put(journal_key("out/", KEY, epoch), b"{")
        for when in ({"asked_s_ago": 10.0}, {"noted_unix_s": time.time()}):
            memory.create_upload("out/k")
            destination.run("abort_intended", place(key="out/k", **when))
            assert not ids(memory)


def test_a_newer_lead_s_spoilt_journal_keeps_them_open(memory: ObjectStore) -> None:
    """They may be its own."""
    write(memory, KEY, epoch=2)
    memory.put(journal_key("out/", KEY, 3), b"{")
    theirs = memory.create_upload("out/k")
    destination = Destination(memory, "stored")
    destination.run("abort_intended", place(key="out/k", noted_unix_s=time.time()))
    with pytest.raises(JournalUnreadable):
        destination.run("abort_intended", place(key="out/k", asked_s_ago=10.0))
    assert ids(memory) == {theirs}


def test_an_intent_of_an_earlier_epoch_keeps_its_time(memory: ObjectStore) -> None:
    """However often its journal is sealed, and its rows written into later ones."""
    write(memory, KEY, upload("out/k", None))
    folder = JournalFolder(memory, "out/", KEY)
    written = folder.rows()[-1].last_modified
    (first,) = folder.read(seal_before=2).readable
    (row,) = first.journal.uploads
    assert row.noted_unix_s == written
    write(memory, KEY, row, epoch=2)
    for stored in folder.read(seal_before=3).readable:
        assert [found.noted_unix_s for found in stored.journal.uploads] == [written]
    begun, before, after = (memory.create_upload("out/k") for _ in range(3))
    times = {begun: written - 5, before: written - 3700, after: written + 3700}
    destination = Destination(begun_at(memory, times), "stored")
    destination.run("abort_intended", place(key="out/k", noted_unix_s=row.noted_unix_s))
    assert ids(memory) == {before, after}


def test_the_removal_of_an_old_intent_spares_the_upload_of_a_living_transfer(
    memory: ObjectStore,
) -> None:
    """Yesterday's run died between intent and answer; today's run writes the same key."""
    write(memory, KEY, upload("out/latest", None))
    (left,) = find_transfers(memory, "out/")
    living, lost = memory.create_upload("out/latest"), memory.create_upload("out/latest")
    write(memory, OTHER_KEY, upload("out/latest", living))
    assert left.remove(memory) == CleanupResult()
    assert ids(memory) == {living}
    assert lost not in ids(memory)


def test_an_old_intent_has_nothing_to_do_with_what_is_begun_today(memory: ObjectStore) -> None:
    """Another tool's, of which no journal tells."""
    yesterday = memory.create_upload("probe")
    (probe,) = memory.list_uploads("probe")
    memory.abort_upload("probe", yesterday)
    write(memory, KEY, upload("out/latest", None, noted_unix_s=probe.initiated - 90_000))
    (left,) = find_transfers(memory, "out/")
    theirs = memory.create_upload("out/latest")
    assert left.remove(memory) == CleanupResult()
    assert ids(memory) == {theirs}


def test_a_late_journal_is_kept_for_a_resume(memory: ObjectStore) -> None:
    """The transfer failed and was released meanwhile; its uploads are named nowhere else."""

    def late(original: Any, *arguments: Any, **more: Any) -> Any:
        destination.close()
        return original(*arguments, **more)

    kept = memory.create_upload("out/k")
    write(memory, KEY, upload("out/k", kept))
    destination = Destination(Wrapped(memory, put=late), "stored")
    row = Journal(KEY, 2, "r", 1, writer="w", sequence=1, uploads=(upload("out/k", kept),))
    order = {"folder": "out/", "journal": row.to_dict(), "if_match": None}
    with pytest.raises(UnknownTransfer):
        destination.run("write_journal", order)
    assert [
        found.journal.epoch for found in JournalFolder(memory, "out/", KEY).read().readable
    ] == [1, 2]
    assert ids(memory) == {kept}
