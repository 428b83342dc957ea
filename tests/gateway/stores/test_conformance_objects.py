"""Every store handles objects alike: ranges, versions, preconditions, keys, attributes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import md5
from typing import Any

import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    InvalidKey,
    NotFound,
    PreconditionFailed,
    StoreError,
)
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.base import read_exactly, read_object
from skyplane_gateway.stores.checksums import Comparison

#: Keys that a store must not mix up. A file store refuses those with False.
ODD_KEYS = {
    "with space": True,
    "plus+and%2Band%20percent": True,
    "question?and#hash&amp;": True,
    "back\\slash": True,
    "new\nline": True,
    "tab\tand\x01control": True,
    "caf\u00e9-nfc": True,
    "cafe\u0301-nfd": True,
    "emoji-\U0001f680": True,
    "UPPER": True,
    "upper": True,
    "a//b": False,
    "./x": False,
    "a/../b": False,
    "../up": False,
    "/leading": False,
    "n" * 1024: False,
    ".": False,
}
SIZES = [0, 1, 65_535, 65_536, 65_537]


def test_check_passes_on_an_empty_bucket(harness: Any) -> None:
    harness.shared.check()
    harness.shared.check("not/there/yet")


@pytest.mark.parametrize("size", SIZES)
def test_a_body_is_read_as_it_was_written(harness: Any, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    written = harness.shared.put("deep/er/key", body, crc32c=crc32c(body))
    assert harness.read("deep/er/key") == body
    found = harness.shared.head("deep/er/key")
    assert (found.size_bytes, found.etag) == (size, written.etag)
    assert found.etag


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_body_is_accepted(harness: Any, kind: Any) -> None:
    harness.shared.put("k", kind(b"body"))
    assert harness.read("k") == b"body"


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (0, 10), (3, 4), (9, 1), (5, 0), (10, 0)])
def test_ranges(harness: Any, offset: int, length: int) -> None:
    info = harness.shared.put("k", b"0123456789")
    assert harness.read_range(info, offset, length) == b"0123456789"[offset : offset + length]


def test_a_range_outside_the_object_is_refused(harness: Any) -> None:
    info = harness.shared.put("k", b"0123456789")
    with pytest.raises(StoreError):
        harness.read_range(info, 8, 5)


@pytest.mark.parametrize("length", [0, 3])
def test_reading_an_old_version_is_refused(harness: Any, length: int) -> None:
    store = harness.shared
    old = store.put("k", b"older")
    store.put("k", b"newer!")
    with pytest.raises(PreconditionFailed):
        store.read("k", offset=0, length=length, if_match=old.etag)


def test_a_missing_object_is_not_found(harness: Any) -> None:
    store = harness.shared
    with pytest.raises(NotFound):
        store.read("none", offset=0, length=1, if_match=None)
    with pytest.raises(NotFound):
        store.head("none")


def test_a_small_object_is_read_whole(harness: Any) -> None:
    store = harness.shared
    info = store.put("k", b"journal")
    found, body = read_object(store, "k", max_bytes=100)
    assert (found.etag, body) == (info.etag, b"journal")
    with pytest.raises(StoreError, match="7 bytes"):
        read_object(store, "k", max_bytes=6)


def test_if_absent_writes_once(harness: Any) -> None:
    store = harness.shared
    store.put("k", b"first", precondition=IF_ABSENT)
    with pytest.raises(PreconditionFailed):
        store.put("k", b"second", precondition=IF_ABSENT)
    with pytest.raises(PreconditionFailed):
        store.put("k", b"first", precondition=IF_ABSENT)
    assert harness.read("k") == b"first"


def test_if_match_replaces_only_that_version(harness: Any) -> None:
    store = harness.shared
    first = store.put("k", b"first")
    second = store.put("k", b"second", precondition=Precondition(if_match=first.etag))
    with pytest.raises(PreconditionFailed):
        store.put("k", b"third", precondition=Precondition(if_match=first.etag))
    assert harness.read("k") == b"second"
    assert store.head("k").etag == second.etag


@pytest.mark.parametrize("there", [False, True])
def test_of_many_writers_with_one_precondition_one_wins(harness: Any, there: bool) -> None:
    store = harness.shared
    # A server that compares and writes in two steps gets one request at a time.
    at_once = 1 if "races" in harness.lacks else 8
    fence = Precondition(if_match=store.put("k", b"old").etag) if there else IF_ABSENT

    def write(number: int) -> bytes | None:
        body = b"%d" % number
        try:
            store.put("k", body, precondition=fence)
        except PreconditionFailed:
            return None
        return body

    with ThreadPoolExecutor(at_once) as pool:
        (winner,) = [body for body in pool.map(write, range(24)) if body is not None]
    assert harness.read("k") == winner


def test_if_match_of_a_deleted_object_is_refused(harness: Any) -> None:
    store = harness.shared
    info = store.put("k", b"first")
    store.delete("k")
    with pytest.raises(PreconditionFailed):
        store.put("k", b"second", precondition=Precondition(if_match=info.etag))


def test_an_object_may_be_deleted_twice(harness: Any) -> None:
    store = harness.shared
    store.put("k", b"x")
    store.delete("k")
    store.delete("k")
    with pytest.raises(NotFound):
        store.head("k")


def test_a_version_that_was_replaced_is_not_deleted(harness: Any) -> None:
    if "if-match-on-delete" in harness.lacks:
        pytest.skip("this server deletes any version")
    store = harness.shared
    seen = store.put("d/k", b"1").etag
    store.put("d/k", b"22")
    with pytest.raises(PreconditionFailed):
        store.delete("d/k", if_match=seen)
    store.delete("d/k", if_match=store.head("d/k").etag)
    assert list(store.list("")) == []
    with suppress(NotFound):
        store.delete("d/k", if_match=seen)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_unusual_keys_are_kept_verbatim_or_refused(harness: Any, key: str) -> None:
    store = harness.shared
    if "newline" in harness.lacks and "\n" in key:
        # This server accepts no newline (s3/test_requests.py asserts the request).
        with pytest.raises(StoreError):
            store.put(key, b"body")
        assert list(store.list("")) == []
        return
    if "dot-names" in harness.lacks and key == ".":
        with pytest.raises(InvalidKey):
            store.put(key, b"body")
        return
    if "control-characters" in harness.lacks and "\x01" in key:
        pytest.skip("this server lists another name than it was given")
    if key in harness.refuses:
        with pytest.raises(InvalidKey):
            store.put(key, b"body")
        return
    if harness.is_posix and not ODD_KEYS[key]:
        if harness.spec.kind != "file":
            pytest.skip("this server keeps objects as files")
        with pytest.raises(InvalidKey):
            store.put(key, b"body")
        return
    store.put(key, b"body")
    assert [info.key for info in store.list("")] == [key]
    assert harness.read(key) == b"body"
    store.delete(key)
    assert list(store.list("")) == []


def test_similar_keys_are_different_objects(harness: Any) -> None:
    twins = ["caf\u00e9", "cafe\u0301", "a", "A", "b+c", "b c", "b%20c"]
    store = harness.shared
    for key in twins:
        store.put(key, key.encode())
    assert {info.key: harness.read(info.key) for info in store.list("")} == {
        key: key.encode() for key in twins
    }


def test_a_directory_marker_beside_its_name(harness: Any) -> None:
    store = harness.shared
    store.put("x/", b"")
    assert store.head("x/").size_bytes == 0
    if harness.is_posix:
        with pytest.raises(InvalidKey):
            store.put("x", b"body")
        with pytest.raises(InvalidKey):
            store.put("y/", b"body")
        return
    store.put("x", b"body")
    assert [info.key for info in store.list("x")] == ["x", "x/"]


@pytest.mark.parametrize("key", ["", "n" * 1025, "lone\ud800surrogate"])
def test_impossible_keys_are_refused_before_a_request(harness: Any, key: str) -> None:
    store = harness.shared
    with pytest.raises(InvalidKey):
        store.put(key, b"")
    with pytest.raises(InvalidKey):
        store.create_upload(key)


def test_attributes_are_kept(harness: Any) -> None:
    store = harness.shared
    attributes = ObjectAttributes(
        content_type="text/csv; charset=utf-8",
        content_encoding="gzip",
        content_language="de",
        content_disposition='attachment; filename="x y.csv"',
        cache_control="max-age=60",
        metadata=(("owner", "data team"), ("with-dash", "1=2&3")),
    )
    store.put("put", b"x", attributes=attributes)
    if store.spec.kind == "file":
        assert store.head("put").attributes in (None, ObjectAttributes())
        return
    assert store.head("put").attributes == attributes
    upload_id = store.create_upload("multi", attributes)
    parts = harness.put_parts("multi", upload_id, [b"x"])
    store.complete_upload("multi", upload_id, parts, size_bytes=1)
    assert store.head("multi").attributes == attributes


def test_text_that_no_header_holds_is_kept(harness: Any) -> None:
    """As Google keeps any text; the others get it encoded."""
    store = harness.shared
    if store.spec.kind == "file":
        return
    texts = (
        "caf\u00e9",
        "\u65e5\u672c",
        "two\nlines" if store.spec.kind != "gcs" else "x",
        "plain",
    )
    named = ("a", "b", "c", "na\u00efve") if store.spec.kind != "gcs" else ("a", "b", "c", "d")
    attributes = ObjectAttributes(
        content_type="text/plain",
        content_disposition='attachment; filename="\u00e9.csv"',
        metadata=tuple(zip(named, texts, strict=True)),
    )
    done = store.put("put", b"x", attributes=attributes)
    assert store.head("put").attributes == attributes
    with store.read("put", offset=0, length=1, if_match=done.etag) as reader:
        assert reader.attributes == attributes
    upload_id = store.create_upload("multi", attributes)
    parts = harness.put_parts("multi", upload_id, [b"x"])
    store.complete_upload("multi", upload_id, parts, size_bytes=1)
    assert store.head("multi").attributes == attributes


def test_a_wrong_checksum_is_refused_if_the_store_checks(harness: Any) -> None:
    store = harness.shared
    if "checksums" in harness.lacks:
        # test_errors.py asserts the mapping of a refusal.
        assert not store.capabilities.trusts_checksum
        return
    with pytest.raises(ChecksumMismatch):
        store.put("k", b"body", crc32c=1)
    with pytest.raises(NotFound):
        store.head("k")


def test_a_trusted_checksum_is_returned(harness: Any) -> None:
    store = harness.shared
    store.put("k", b"body", crc32c=crc32c(b"body"))
    expected = crc32c(b"body") if store.capabilities.trusts_checksum else None
    assert store.head("k").crc32c == expected


def test_values_survive_json(harness: Any) -> None:
    written = harness.shared.put("k", b"x", attributes=ObjectAttributes(metadata=(("a", "b"),)))
    info = replace(written, not_carried=("tags",))
    assert type(info).from_dict(info.to_dict()) == info
    assert StoreSpec.from_dict(harness.spec.to_dict()) == harness.spec


def test_the_md5_of_an_object_is_stated_where_it_is_one(harness: Any) -> None:
    store, body = harness.shared, b"body"
    store.put("k", body, crc32c=crc32c(body))
    expected = md5(body, usedforsecurity=False).hexdigest()
    kind = harness.spec.kind
    (listed,) = store.list("k")
    # A listing of S3 does not tell an ETag that is an MD5 from one that is none.
    assert listed.md5 == (expected if kind in ("azure", "gcs") else None)
    assert store.head("k").md5 == (expected if kind in ("azure", "gcs", "s3") else None)
    assert type(listed).from_dict(listed.to_dict()) == listed
    earlier = {name: value for name, value in listed.to_dict().items() if name != "md5"}
    assert type(listed).from_dict(earlier) == replace(listed, md5=None)
    # An object of several parts has none.
    upload_id = store.create_upload("k")
    parts = harness.put_parts("k", upload_id, [bytes(harness.part_bytes), b"end"])
    whole = bytes(harness.part_bytes) + b"end"
    store.complete_upload("k", upload_id, parts, size_bytes=len(whole), crc32c=crc32c(whole))
    found = {info.md5 for info in (*store.list("k"), store.head("k"))}
    assert found <= {None, md5(whole, usedforsecurity=False).hexdigest()}


def test_an_option_ignores_the_stated_md5(harness: Any) -> None:
    if harness.spec.kind not in ("azure", "s3"):
        return  # They state none, or a CRC32C of their own too.
    harness.shared.put("k", b"body")
    options = (*harness.spec.options, ("content-md5", "ignore"))
    harness.spec = replace(harness.spec, options=options)
    store = harness.open()
    assert [info.md5 for info in (*store.list("k"), store.head("k"))] == [None, None]


def test_what_an_answer_states_is_true_of_the_whole_and_nothing_of_a_part(harness: Any) -> None:
    store = harness.shared
    whole = bytes(range(256)) * (harness.part_bytes // 256) + b"end"
    store.put("one", whole[:777], crc32c=crc32c(whole[:777]))
    upload_id = store.create_upload("many")
    parts = harness.put_parts("many", upload_id, [whole[: harness.part_bytes], b"end"])
    store.complete_upload("many", upload_id, parts, size_bytes=len(whole), crc32c=crc32c(whole))
    states = {"file": 0, "azure": 1}.get(harness.spec.kind, 2)
    if "checksums" in harness.lacks:
        states = 1
    found = 0
    for key, body in (("one", whole[:777]), ("many", whole)):
        with store.read(key, offset=0, length=len(body), if_match=None) as reader:
            comparison = Comparison(key, reader.stated)
            comparison.take(read_exactly(reader, len(body)))
            comparison.finish()
            found += reader.stated is not None
        for offset, length in ((0, len(body) - 1), (1, len(body) - 1), (0, harness.part_bytes)):
            if offset + length < len(body):
                with store.read(key, offset=offset, length=length, if_match=None) as reader:
                    assert reader.stated is None
    assert found == states
