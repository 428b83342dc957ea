from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.journal.samples import journal, upload
from tests.gateway.sink.wrapped import Wrapped, flipped

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    ConfigurationInvalid,
    InternalError,
    NotFound,
    PreconditionFailed,
    ReadBackMismatch,
    StoreError,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.job_options import Verification
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    UNCONDITIONAL,
    ObjectAttributes,
    Precondition,
)
from skyplane_gateway.common.schema import encode
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores.base import ObjectStore

BODY = bytes(range(256)) * 8
CRC = crc32c(BODY)


def lying(original: Callable[..., Any], key: str, data: Any, **more: Any) -> Any:
    """Stores another byte than it was given, and says what it was given."""
    given = more["crc32c"]
    return replace(flipped(original, key, data, **more), crc32c=given)


def silent(original: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Writes well, and does not say what it wrote."""
    return replace(original(*arguments, **more), crc32c=None)


def put(destination: Destination, key: str = "k", body: bytes = BODY) -> Any:
    return destination.put(key, body, crc32c(body), ObjectAttributes(), UNCONDITIONAL)


@pytest.mark.parametrize("verify", ["stored", "reread", "none"])
@pytest.mark.parametrize("trusted", [True, False])
def test_good_bytes_are_found_good(memory: ObjectStore, trusted: bool, verify: Any) -> None:
    store = Wrapped(memory, trusted=trusted)
    put(Destination(store, verify))
    assert memory.head("k").crc32c == CRC
    looks = verify == "reread" or (verify == "stored" and not trusted)
    assert ("read" in store.calls) == looks


@pytest.mark.parametrize(
    ("verify", "trusted", "writes", "finds"),
    [
        ("stored", True, flipped, True),
        ("stored", False, flipped, True),
        ("reread", True, flipped, True),
        ("none", True, flipped, False),
        ("none", False, flipped, False),
        # What a trusted store says is believed; that is what trust means.
        ("stored", True, lying, False),
        ("stored", False, lying, True),
        ("reread", True, lying, True),
    ],
)
def test_other_bytes_are_found_and_removed(
    memory: ObjectStore, verify: Verification, trusted: bool, writes: Any, finds: bool
) -> None:
    destination = Destination(
        Wrapped(memory, trusted=trusted, put=writes),
        verify,
    )
    if not finds:
        put(destination)
        assert memory.head("k").crc32c != CRC
        return
    with pytest.raises(ChecksumMismatch, match="removed") as caught:
        put(destination)
    assert not caught.value.is_permanent
    with pytest.raises(NotFound):
        memory.head("k")


def test_a_trusted_store_that_says_nothing_is_read_again(memory: ObjectStore) -> None:
    store = Wrapped(memory, put=silent)
    put(Destination(store, "stored"))
    assert "read" in store.calls


class Ending:
    """A body that ends before the range does."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def readinto(self, buffer: memoryview) -> int:
        return 0


def test_a_body_that_ends_early_is_not_taken_for_other_bytes(memory: ObjectStore) -> None:
    """Else a retry would take the object for another writer's."""
    store = Wrapped(memory, trusted=False, read=lambda *_, **__: Ending())
    memory.put("k", BODY)
    with pytest.raises(StoreUnavailable):
        Destination(store, "stored").run("head", {"key": "k", "checksum": True})
    with pytest.raises(StoreUnavailable):
        Destination(store, "stored").put("k", BODY, CRC, ObjectAttributes(), IF_ABSENT)


def test_an_object_that_is_too_short_is_removed(memory: ObjectStore) -> None:
    def short(original: Any, key: str, data: Any, **more: Any) -> Any:
        more["crc32c"] = None
        return original(key, data[:-1], **more)

    store = Wrapped(memory, trusted=False, put=short, read=lambda *_, **__: Ending())
    with pytest.raises(ChecksumMismatch, match="cannot be read back whole"):
        put(Destination(store, "stored"))
    with pytest.raises(NotFound):
        memory.head("k")


def test_what_somebody_else_wrote_meanwhile_is_not_removed(memory: ObjectStore) -> None:
    def overtaken(original: Any, *arguments: Any, **more: Any) -> Any:
        memory.put("k", b"theirs")
        return original(*arguments, **more)

    store = Wrapped(memory, trusted=False, read=overtaken)
    with pytest.raises(PreconditionFailed):
        put(Destination(store, "stored"))
    assert memory.head("k").size_bytes == len(b"theirs")


@pytest.mark.parametrize("body", [b"", b"x", BODY * 1000])
def test_sizes(memory: ObjectStore, body: bytes) -> None:
    put(Destination(memory, "reread"), body=body)
    assert memory.head("k").crc32c == crc32c(body)


def test_a_folders_mark_is_not_read_and_an_object_of_that_name_is(memory: ObjectStore) -> None:
    store = Wrapped(memory)
    put(Destination(store, "reread"), "folder/", b"")
    assert "read" not in store.calls
    store = Wrapped(memory, put=flipped)
    with pytest.raises(ChecksumMismatch):
        put(Destination(store, "stored"), "folder/")


# -- verbs


def begin(destination: Destination, key: str = "big", parts: int = 2) -> tuple[str, dict[str, Any]]:
    """An upload with all its parts, and the arguments that complete it."""
    upload_id = destination.run("create", {"key": key, "attributes": None})["upload_id"]
    rows = [
        destination.put_part(key, upload_id, number, BODY, (number - 1) * len(BODY), CRC)
        for number in range(1, parts + 1)
    ]
    return upload_id, {
        "key": key,
        "upload_id": upload_id,
        "parts": [encode(row) for row in rows],
        "precondition": encode(IF_ABSENT),
        "size_bytes": parts * len(BODY),
        "crc32c": crc32c(BODY * parts),
    }


def test_an_upload_from_its_beginning_to_its_end(memory: ObjectStore) -> None:
    destination = Destination(memory, "reread")
    _, arguments = begin(destination)
    assert destination.run("complete", arguments)["crc32c"] == crc32c(BODY * 2)
    assert memory.head("big").size_bytes == 2 * len(BODY)
    # A repetition after a lost answer is answered alike.
    assert destination.run("complete", arguments)["crc32c"] == crc32c(BODY * 2)


def test_what_is_left_of_a_completed_upload_is_told(memory: ObjectStore) -> None:
    def stubborn(original: Any, key: str, upload_id: str) -> None:
        raise StoreUnavailable("503")

    def leaving(original: Any, *arguments: Any, **more: Any) -> Any:
        return replace(original(*arguments, **more), leftover="a part stays")

    def gone(original: Any, *arguments: Any, **more: Any) -> Any:
        raise NotFound("no upload")

    _, arguments = begin(Destination(memory, "reread"))
    first = Destination(Wrapped(memory, complete_upload=leaving), "reread")
    assert first.run("complete", arguments)["leftover"] == "a part stays"
    # The answer was lost, and the next attempt finds the object.
    again = Destination(Wrapped(memory, complete_upload=gone, abort_upload=stubborn), "reread")
    assert again.run("complete", arguments)["leftover"] == "503"


def test_a_whole_with_other_bytes_is_removed(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    _, arguments = begin(destination)
    wrong = Wrapped(
        memory,
        complete_upload=lambda original, *a, **m: original(*a, **{**m, "crc32c": None}),
    )
    with pytest.raises(ChecksumMismatch, match="removed"):
        Destination(wrong, "stored").run("complete", {**arguments, "crc32c": 7})
    with pytest.raises(NotFound):
        memory.head("big")


def test_aborting_is_idempotent(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    upload_id, _ = begin(destination)
    for _ in range(2):
        destination.run("abort", {"key": "big", "upload_id": upload_id})
    assert list(memory.list_uploads("")) == []


def test_closing_aborts_what_is_open_and_nothing_else(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    _, done = begin(destination, "done")
    destination.run("complete", done)
    begin(destination, "open")
    begin(destination, "also-open")
    somebody_elses = memory.create_upload("theirs")
    destination.close()
    assert [upload.upload_id for upload in memory.list_uploads("")] == [somebody_elses]
    assert memory.head("done").size_bytes == 2 * len(BODY)


def test_one_upload_that_cannot_be_aborted_does_not_keep_the_others(memory: ObjectStore) -> None:
    def stubborn(original: Any, key: str, upload_id: str) -> None:
        if key == "stuck":
            raise StoreUnavailable("503")
        original(key, upload_id)

    destination = Destination(Wrapped(memory, abort_upload=stubborn), "stored")
    for key in ("a", "stuck", "z"):
        begin(destination, key)
    destination.close()
    assert [upload.key for upload in memory.list_uploads("")] == ["stuck"]


def test_an_upload_that_begins_while_the_transfer_ends_is_aborted(memory: ObjectStore) -> None:
    """A cancel comes while the store makes it: nobody else would ever hear of its id."""
    made, closed = threading.Event(), threading.Event()

    def slow(original: Any, *arguments: Any) -> Any:
        upload_id = original(*arguments)
        made.set()
        closed.wait(10)
        return upload_id

    destination = Destination(Wrapped(memory, create_upload=slow), "stored")
    errors: list[Exception] = []

    def create() -> None:
        try:
            destination.run("create", {"key": "late", "attributes": None})
        except UnknownTransfer as error:
            errors.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert made.wait(10)
    destination.close()
    closed.set()
    thread.join(10)
    assert len(errors) == 1
    assert list(memory.list_uploads("")) == []


def test_listing_goes_page_by_page(memory: ObjectStore) -> None:
    for number in range(5):
        memory.put(f"p/{number}", b"")
    destination = Destination(memory, "stored")
    found: list[str] = []
    more, after = True, None
    while more:
        page = destination.run("list", {"prefix": "p/", "start_after": after, "limit": 2})
        found += [row["key"] for row in page["objects"]]
        more, after = page["more"], found[-1]
    assert found == [f"p/{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("delete", {"key": "k"}),
        ("", {}),
        ("close", {}),
    ],
)
def test_what_is_no_verb_is_refused(
    memory: ObjectStore, verb: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationInvalid):
        Destination(memory, "stored").run(verb, arguments)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("create", {}),
        ("create", {"key": "k", "attributes": []}),
        ("complete", {"key": "k"}),
        ("abort", {"key": "k"}),
        ("list", {"prefix": "", "start_after": None, "limit": "many"}),
    ],
)
def test_a_verb_that_fails_on_something_unforeseen_says_so(
    memory: ObjectStore, verb: str, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InternalError, match=verb):
        Destination(memory, "stored").run(verb, arguments)
    assert "Traceback" in caplog.text


# -- a bad write in place of something


def test_the_next_attempt_after_a_bad_replacement_succeeds(memory: ObjectStore) -> None:
    """The bad object was removed, so its predecessor's etag can never match again."""
    old = memory.put("k", b"old")
    writes = iter([flipped, lambda original, *a, **m: original(*a, **m)])
    store = Wrapped(memory, put=lambda original, *a, **m: next(writes)(original, *a, **m))
    destination = Destination(store, "stored")
    fence = Precondition(if_match=old.etag)
    with pytest.raises(ReadBackMismatch, match="what it had replaced is gone") as caught:
        destination.put("k", BODY, CRC, ObjectAttributes(), fence)
    assert not caught.value.is_permanent
    destination.put("k", BODY, CRC, ObjectAttributes(), fence)
    assert memory.head("k").crc32c == CRC


def test_a_stranger_that_came_after_a_bad_replacement_is_not_overwritten(
    memory: ObjectStore,
) -> None:
    old = memory.put("k", b"old")
    destination = Destination(Wrapped(memory, put=flipped), "stored")
    fence = Precondition(if_match=old.etag)
    with pytest.raises(ReadBackMismatch):
        destination.put("k", BODY, CRC, ObjectAttributes(), fence)
    memory.put("k", b"theirs")
    with pytest.raises(PreconditionFailed):
        destination.put("k", BODY, CRC, ObjectAttributes(), fence)
    assert memory.head("k").size_bytes == len(b"theirs")


def test_another_version_that_is_gone_is_still_a_failed_precondition(memory: ObjectStore) -> None:
    old = memory.put("k", b"old")
    destination = Destination(Wrapped(memory, put=flipped), "stored")
    with pytest.raises(ReadBackMismatch):
        destination.put("k", BODY, CRC, ObjectAttributes(), Precondition(if_match=old.etag))
    with pytest.raises(PreconditionFailed):
        destination.put("k", BODY, CRC, ObjectAttributes(), Precondition(if_match="other"))


def test_a_bad_whole_in_place_of_something_says_that_it_is_gone(memory: ObjectStore) -> None:
    old = memory.put("big", b"old")
    bad = Wrapped(
        memory,
        trusted=False,
        complete_upload=lambda original, *a, **m: original(*a, **{**m, "crc32c": None}),
    )
    destination = Destination(bad, "stored")
    _, arguments = begin(destination)
    arguments = {
        **arguments,
        "crc32c": 7,
        "precondition": encode(Precondition(if_match=old.etag)),
    }
    with pytest.raises(ReadBackMismatch, match="what it had replaced is gone") as caught:
        destination.run("complete", arguments)
    # The upload has gone with it: a retry of this very call cannot help.
    assert caught.value.is_permanent


@pytest.mark.parametrize(("refusals", "theirs"), [(1, b""), (2, b""), (1, b"theirs")])
def test_a_bad_object_that_could_not_be_removed_is_removed_at_the_end(
    memory: ObjectStore, refusals: int, theirs: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else knows that it is bad."""
    refused = iter([StoreUnavailable("try again")] * refusals)

    def delete(original: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        for error in refused:
            raise error
        original(*arguments, **more)

    destination = Destination(Wrapped(memory, put=flipped, delete=delete), "stored")
    with pytest.raises(StoreUnavailable):
        put(destination)
    if theirs:
        memory.put("k", theirs)
    destination.close()
    stays = refusals == 2 or theirs != b""
    assert [info.key for info in memory.list("")] == (["k"] if stays else [])
    assert ("has wrong bytes and cannot be removed" in caplog.text) == (refusals == 2)


# -- uploads of an earlier epoch


def test_parts_are_listed(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    upload_id, arguments = begin(destination)
    answer = destination.run("list_parts", {"key": "big", "upload_id": upload_id})
    assert answer["parts"] == arguments["parts"]
    with pytest.raises(NotFound):
        destination.run("list_parts", {"key": "big", "upload_id": "none"})


@pytest.mark.parametrize("trusted", [True, False])
def test_head_tells_the_checksum_where_it_is_asked_for(memory: ObjectStore, trusted: bool) -> None:
    destination = Destination(Wrapped(memory, trusted=trusted, head=silent), "stored")
    assert destination.run("head", {"key": "k"}) == {"object": None}
    assert destination.run("head", {"key": "k", "checksum": True}) == {"object": None}
    memory.put("k", BODY)
    assert destination.run("head", {"key": "k"})["object"].get("crc32c") is None
    assert destination.run("head", {"key": "k", "checksum": True})["object"]["crc32c"] == CRC


def write(destination: Destination, row: Journal, if_match: str | None = None) -> str:
    answer = destination.run(
        "write_journal", {"folder": "out/", "journal": row.to_dict(), "if_match": if_match}
    )
    return str(answer["etag"])


def test_an_upload_that_a_journal_names_outlives_its_sink(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    kept = destination.run("create", {"key": "kept", "attributes": None, "is_journaled": True})[
        "upload_id"
    ]
    begin(destination, "dropped")
    destination.close()
    assert [row.upload_id for row in memory.list_uploads("")] == [kept]


def test_a_cancel_aborts_what_the_journals_name_and_removes_them(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    ids = [
        destination.run("create", {"key": key, "attributes": None, "is_journaled": True})[
            "upload_id"
        ]
        for key in ("named", "intended")
    ]
    somebody_elses = memory.create_upload("theirs")
    write(destination, journal(uploads=(upload("named", ids[0]), upload("intended", None))))
    destination.close(abandoned_epoch=1)
    assert [row.upload_id for row in memory.list_uploads("")] == [somebody_elses]
    assert list(memory.list("")) == []


def test_an_upload_that_begins_after_the_last_journal_is_aborted_with_it(
    memory: ObjectStore,
) -> None:
    """A sink that was stopped runs the verb of a lead that has ended meanwhile."""
    destination = Destination(memory, "stored")
    write(destination, journal())
    destination.run("create", {"key": "late", "attributes": None, "is_journaled": True})
    destination.close(abandoned_epoch=1)
    assert list(memory.list_uploads("")) == []


def test_a_newer_epoch_keeps_the_uploads_of_an_abandoned_one(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    write(destination, journal())
    destination.run("create", {"key": "taken over", "attributes": None, "is_journaled": True})
    write(Destination(memory, "stored"), journal(epoch=2))
    destination.close(abandoned_epoch=1)
    assert [row.key for row in memory.list_uploads("")] == ["taken over"]


def test_a_journal_stays_while_an_upload_of_it_cannot_be_aborted(memory: ObjectStore) -> None:
    def stubborn(original: Any, key: str, upload_id: str) -> None:
        if key == "stuck":
            raise StoreUnavailable("503")
        original(key, upload_id)

    destination = Destination(Wrapped(memory, abort_upload=stubborn), "stored")
    rows = tuple(upload(key, memory.create_upload(key)) for key in ("a", "stuck", "z"))
    write(destination, journal(uploads=rows))
    with pytest.raises(StoreError, match=r"an upload of 'stuck' stays open, .* 503"):
        destination.run(
            "delete_journals",
            {"folder": "out/", "transfer_key": "ab" * 16, "epoch": 1},
        )
    destination.close(abandoned_epoch=1)
    assert [row.key for row in memory.list_uploads("")] == ["stuck"]
    assert len(list(memory.list("out/.skyplane/jobs/"))) == 1


def test_nothing_is_written_into_a_journal_of_a_transfer_that_ended(memory: ObjectStore) -> None:
    destination = Destination(memory, "stored")
    etag = write(destination, journal())
    destination.close(abandoned_epoch=1)
    with pytest.raises(UnknownTransfer):
        write(destination, journal(sequence=2), etag)
    assert list(memory.list("")) == []


def test_a_journal_that_is_written_while_the_transfer_is_cancelled_is_removed(
    memory: ObjectStore,
) -> None:
    def late(original: Any, *arguments: Any, **more: Any) -> Any:
        destination.close(abandoned_epoch=1)
        return original(*arguments, **more)

    destination = Destination(Wrapped(memory, put=late), "stored")
    with pytest.raises(UnknownTransfer):
        write(destination, journal())
    assert list(memory.list("")) == []
