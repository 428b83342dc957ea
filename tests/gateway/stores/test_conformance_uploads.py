"""Every store handles multipart uploads alike: any order, any process, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.stores.by_sink import complete_by_sink

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    NotFound,
    PreconditionFailed,
    StoreError,
)
from skyplane_gateway.common.objects import IF_ABSENT, PartInfo, Precondition


@pytest.mark.parametrize("tail", [-1, 0, 1])
def test_part_boundaries(harness: Any, tail: int) -> None:
    size = harness.part_bytes
    body = bytes(range(251)) * (2 * size // 251 + 1)
    body = body[: 2 * size + tail]
    bodies = [body[start : start + size] for start in range(0, len(body), size)]
    store = harness.shared
    upload_id = store.create_upload("big/object")
    parts = harness.put_parts("big/object", upload_id, bodies)
    done = store.complete_upload(
        "big/object", upload_id, parts, size_bytes=len(body), crc32c=crc32c(body)
    )
    assert done.size_bytes == len(body)
    assert store.head("big/object").etag == done.etag
    assert harness.read("big/object") == body
    assert list(store.list_uploads("")) == []
    if store.capabilities.trusts_checksum:
        assert done.crc32c == crc32c(body)


def test_parts_out_of_order_from_two_stores(harness: Any) -> None:
    size = harness.part_bytes
    first, second, third = b"1" * size, b"2" * size, b"3"
    one, two = harness.open(), harness.open()
    upload_id = one.create_upload("k")
    stored = [
        two.put_part("k", upload_id, 3, third, offset=2 * size, crc32c=crc32c(third)),
        one.put_part("k", upload_id, 1, first, offset=0, crc32c=crc32c(first)),
        two.put_part("k", upload_id, 2, memoryview(second), offset=size, crc32c=crc32c(second)),
    ]
    parts = sorted(stored, key=lambda part: part.number)
    assert list(one.list("")) == []
    listed = two.list_parts("k", upload_id)
    assert [(part.number, part.etag, part.size_bytes) for part in listed] == [
        (part.number, part.etag, part.size_bytes) for part in parts
    ]
    two.complete_upload("k", upload_id, listed, size_bytes=2 * size + 1)
    assert harness.read("k") == first + second + third


def test_listed_parts_have_their_checksums(harness: Any) -> None:
    """A resumed transfer keeps stored parts by their checksums, without a read."""
    store, size = harness.shared, harness.part_bytes
    bodies = [b"1" * size, b"2" * size, b"3"]
    upload_id = store.create_upload("k")
    stored = harness.put_parts("k", upload_id, bodies)
    found = {part.number: part.crc32c for part in harness.open().list_parts("k", upload_id)}
    if harness.lacks & {"checksums", "part-checksums"}:
        assert set(found.values()) == {None}  # Such a part is sent again.
        return
    assert found == {number: crc32c(body) for number, body in enumerate(bodies, start=1)}
    assert [part.crc32c for part in stored] == list(found.values())


def test_a_part_sent_again_replaces_the_first(harness: Any) -> None:
    store = harness.shared
    upload_id = store.create_upload("k")
    harness.put_parts("k", upload_id, [b"wrong"])
    if "part-replaced" in harness.lacks:
        # A transfer that goes on sends the same bytes again.
        harness.put_parts("k", upload_id, [b"wrong"])
        with pytest.raises(StoreError):
            harness.put_parts("k", upload_id, [b"right"])
        return
    parts = harness.put_parts("k", upload_id, [b"right"])
    assert [part.etag for part in store.list_parts("k", upload_id)] == [parts[0].etag]
    store.complete_upload("k", upload_id, parts, size_bytes=5)
    assert harness.read("k") == b"right"


def test_open_uploads_are_listed_by_prefix(harness: Any) -> None:
    store = harness.shared
    ids = {key: store.create_upload(key) for key in ["a/b", "a/c/d", "ab", "b"]}
    assert {info.key: info.upload_id for info in store.list_uploads("")} == ids
    assert {info.key for info in store.list_uploads("a/")} == {"a/b", "a/c/d"}
    assert {info.key for info in store.list_uploads("a")} == {"a/b", "a/c/d", "ab"}
    assert all(info.initiated > 0 for info in store.list_uploads(""))


def test_abort_leaves_nothing_and_may_be_repeated(harness: Any) -> None:
    store = harness.shared
    upload_id = store.create_upload("folder/k")
    harness.put_parts("folder/k", upload_id, [b"x"])
    store.abort_upload("folder/k", upload_id)
    store.abort_upload("folder/k", upload_id)
    assert list(store.list_uploads("")) == []
    assert list(store.list("")) == []
    with pytest.raises(NotFound):
        store.list_parts("folder/k", upload_id)
    part = PartInfo(1, '"9dd4e461268c8034f5c8564e155c67a6"', 1, crc32c(b"x"))
    if "no-such-upload" not in harness.lacks:
        with pytest.raises(NotFound):
            store.complete_upload("folder/k", upload_id, [part], size_bytes=1)
        with pytest.raises(NotFound):
            harness.put_parts("folder/k", upload_id, [b"x"])


def test_an_unknown_upload_is_not_found(harness: Any) -> None:
    store = harness.shared
    never = "../../etc/passwd"
    store.abort_upload("k", never)
    with pytest.raises(NotFound):
        store.list_parts("k", never)
    if "no-such-upload" not in harness.lacks:
        with pytest.raises(NotFound):
            store.put_part("k", never, 1, b"x", offset=0, crc32c=crc32c(b"x"))


def test_completion_under_if_absent(harness: Any) -> None:
    if "if-absent-on-completion" in harness.lacks:
        pytest.skip("this server replaces any object (gcs/test_uploads.py asserts the request)")
    store = harness.shared
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"late"])
    store.put("k", b"earlier")
    with pytest.raises(PreconditionFailed):
        store.complete_upload("k", upload_id, parts, precondition=IF_ABSENT, size_bytes=4)
    assert harness.read("k") == b"earlier"
    store.abort_upload("k", upload_id)
    assert list(store.list_uploads("")) == []


def test_completion_under_if_match(harness: Any) -> None:
    store = harness.shared
    listed = store.put("k", b"old")
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"new"])
    done = store.complete_upload(
        "k", upload_id, parts, precondition=Precondition(if_match=listed.etag), size_bytes=3
    )
    assert harness.read("k") == b"new"
    if "if-match-on-completion" in harness.lacks:
        return  # It replaces any version.
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"newer"])
    with pytest.raises(PreconditionFailed):
        store.complete_upload(
            "k", upload_id, parts, precondition=Precondition(if_match=listed.etag), size_bytes=5
        )
    assert store.head("k").etag == done.etag


def test_a_repeated_completion(harness: Any) -> None:
    """The sink finds its own object, and no other one."""
    if "gone-upload" in harness.lacks:
        pytest.skip("this server answers with whatever object is there")
    store = harness.shared
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"body"])
    done = complete_by_sink(store, upload_id, parts, b"body")
    assert complete_by_sink(store, upload_id, parts, b"body") == done
    store.put("k", b"else")
    with pytest.raises((NotFound, PreconditionFailed)):
        complete_by_sink(store, upload_id, parts, b"body")


def test_a_missing_part_is_refused(harness: Any) -> None:
    store = harness.shared
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"body"])
    wrong = PartInfo(1, '"00000000000000000000000000000000"', 4, crc32c(b"body"))
    with pytest.raises(ChecksumMismatch):
        store.complete_upload("k", upload_id, [wrong], size_bytes=4)
    with pytest.raises(ChecksumMismatch):
        store.complete_upload("k", upload_id, [*parts, PartInfo(2, '"x"', 1, 1)], size_bytes=5)


def test_another_size_is_refused(harness: Any) -> None:
    store = harness.shared
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [b"body"])
    with pytest.raises(StoreError, match=r"bytes|size"):
        store.complete_upload("k", upload_id, parts, size_bytes=5)


def test_a_wrong_checksum_is_refused_if_the_store_checks(harness: Any) -> None:
    store = harness.shared
    if harness.lacks & {"checksums", "part-checksums"}:
        # test_errors.py asserts the mapping of a refusal.
        assert not store.capabilities.trusts_checksum
        return
    upload_id = store.create_upload("k")
    with pytest.raises(ChecksumMismatch):
        store.put_part("k", upload_id, 1, b"body", offset=0, crc32c=1)
    assert store.list_parts("k", upload_id) == ()
