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
from skyplane_gateway.stores.checksums import ChecksumComparison

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


def test_a_body_is_read_as_it_was_written(either: Any) -> None:
    for size in SIZES:
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        written = either.shared.put("deep/er/key", body, crc32c=crc32c(body))
        assert either.read("deep/er/key") == body
        found = either.shared.head("deep/er/key")
        assert (found.size_bytes, found.etag) == (size, written.etag)
        assert found.etag


def test_every_kind_of_body_is_accepted(harness: Any) -> None:
    for kind in (bytes, bytearray, memoryview):
        harness.shared.put("k", kind(b"body"))
        assert harness.read("k") == b"body"


def test_ranges(either: Any) -> None:
    body = b"0123456789"
    info = either.shared.put("k", body)
    for offset, length in ((0, 1), (0, 10), (3, 4), (9, 1), (5, 0), (10, 0)):
        assert either.read_range(info, offset, length) == body[offset : offset + length]
    with pytest.raises(StoreError):
        either.read_range(info, 8, 5)


def test_reading_an_old_version_is_refused(either: Any) -> None:
    store = either.shared
    old = store.put("k", b"older")
    store.put("k", b"newer!")
    for length in (0, 3):
        with pytest.raises(PreconditionFailed):
            store.read("k", offset=0, length=length, if_match=old.etag)


def test_a_missing_object_is_not_found(either: Any) -> None:
    with pytest.raises(NotFound):
        either.shared.read("none", offset=0, length=1, if_match=None)
    with pytest.raises(NotFound):
        either.shared.head("none")


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


def refusal_of(harness: Any, key: str) -> type[StoreError] | None:
    """The error of a store that cannot hold the key."""
    if "newline" in harness.lacks and "\n" in key:
        return StoreError  # s3/test_requests.py asserts the request.
    is_file = harness.spec.kind == "file" and not ODD_KEYS[key]
    has_dots = "dot-names" in harness.lacks and key == "."
    return InvalidKey if is_file or has_dots or key in harness.refuses else None


def test_unusual_keys_are_kept_verbatim_or_refused(either: Any) -> None:
    store = either.shared
    for key in ODD_KEYS:
        if refusal := refusal_of(either, key):
            with pytest.raises(refusal):
                store.put(key, b"body")
            assert list(store.list("")) == [], key
            continue
        if "control-characters" in either.lacks and "\x01" in key:
            continue  # This server lists another name than it was given.
        if either.is_posix and not ODD_KEYS[key]:
            continue  # This server keeps objects as files.
        store.put(key, b"body", crc32c=crc32c(b"body"))
        assert [info.key for info in store.list("")] == [key]
        assert either.read(key) == b"body"
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
        refused = StoreError if "conflict-code" in harness.lacks else InvalidKey
        with pytest.raises(refused):
            store.put("x", b"body")
        with pytest.raises(refused):
            store.put("y/", b"body")
        return
    store.put("x", b"body")
    assert [info.key for info in store.list("x")] == ["x", "x/"]


def test_impossible_keys_are_refused_before_a_request(harness: Any) -> None:
    for key in ("", "n" * 1025, "lone\ud800surrogate"):
        with pytest.raises(InvalidKey):
            harness.shared.put(key, b"")
        with pytest.raises(InvalidKey):
            harness.shared.create_upload(key)


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
    harness.write_both(attributes)
    for key in ("put", "multi"):
        found = store.head(key).attributes
        if store.spec.kind == "file":
            assert found in (None, ObjectAttributes())
        else:
            assert found == attributes


def test_text_that_no_header_holds_is_kept(either: Any) -> None:
    """As Google keeps any text; the others get it encoded."""
    store, is_gcs = either.shared, either.spec.kind == "gcs"
    if store.spec.kind == "file":
        return
    texts = ("caf\u00e9", "\u65e5\u672c", "x" if is_gcs else "two\nlines", "plain")
    named = ("a", "b", "c", "d" if is_gcs else "na\u00efve")
    attributes = ObjectAttributes(
        content_type="text/plain",
        content_disposition='attachment; filename="\u00e9.csv"',
        metadata=tuple(zip(named, texts, strict=True)),
    )
    either.write_both(attributes)
    assert store.head("put").attributes == store.head("multi").attributes == attributes
    with store.read("put", offset=0, length=1, if_match=store.head("put").etag) as reader:
        assert reader.attributes == attributes


def test_a_wrong_checksum_is_refused_if_the_store_checks(either: Any) -> None:
    store = either.shared
    if "checksums" in either.lacks:
        # test_errors.py asserts the mapping of a refusal.
        assert not store.capabilities.trusts_checksum
        return
    with pytest.raises(ChecksumMismatch):
        store.put("k", b"body", crc32c=1)
    with pytest.raises(NotFound):
        store.head("k")


def test_a_trusted_checksum_is_returned(either: Any) -> None:
    store = either.shared
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


def test_what_an_answer_states_is_true_of_the_whole_and_nothing_of_a_part(either: Any) -> None:
    store = either.shared
    whole = bytes(range(256)) * (either.part_bytes // 256) + b"end"
    store.put("one", whole[:777], crc32c=crc32c(whole[:777]))
    upload_id = store.create_upload("many")
    parts = either.put_parts("many", upload_id, [whole[: either.part_bytes], b"end"])
    store.complete_upload("many", upload_id, parts, size_bytes=len(whole), crc32c=crc32c(whole))
    states = {"file": 0, "azure": 1}.get(either.spec.kind, 2)
    if "checksums" in either.lacks:
        states = 1
    found = 0
    for key, body in (("one", whole[:777]), ("many", whole)):
        with store.read(key, offset=0, length=len(body), if_match=None) as reader:
            comparison = ChecksumComparison(key, reader.stated)
            comparison.take(read_exactly(reader, len(body)))
            comparison.finish()
            found += reader.stated is not None
        for offset, length in ((0, len(body) - 1), (1, len(body) - 1), (0, either.part_bytes)):
            if offset + length < len(body):
                with store.read(key, offset=offset, length=length, if_match=None) as reader:
                    assert reader.stated is None
    assert found == states
