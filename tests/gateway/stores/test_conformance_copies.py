"""Every store that copies parts itself does so alike: one version, fenced at the commit."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.checksum import combine, crc32c
from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
)
from skyplane_gateway.stores.copy_source import CopySource

pytestmark = pytest.mark.parametrize(
    "harness",
    ["gcs", "memory", "s3", "versitygw", pytest.param("rclone", marks=pytest.mark.long)],
    indirect=True,
)

#: A key that has to be encoded in a header.
KEY = "from/a b+ü%2B"


def put_source(harness: Any, *, filler: bytes = b"0123456789abcde") -> tuple[bytes, ObjectInfo]:
    size = 2 * harness.part_bytes + 7
    body = (filler * (size // len(filler) + 1))[:size]
    return body, harness.shared.put(KEY, body, crc32c=crc32c(body))


def sources(harness: Any, info: ObjectInfo) -> list[CopySource]:
    """The parts to copy: ranges, or the whole object where the store copies only such."""
    can_cut = harness.shared.capabilities.server_side_copy == "ranges"
    step = harness.part_bytes if can_cut else info.size_bytes
    return [
        CopySource(harness.spec, KEY, info.etag, offset, min(step, info.size_bytes - offset))
        for offset in range(0, info.size_bytes, step)
    ]


def copy_parts(harness: Any, upload_id: str, info: ObjectInfo) -> list[PartInfo]:
    return [
        harness.shared.copy_part("to", upload_id, number, source)
        for number, source in enumerate(sources(harness, info), start=1)
    ]


def test_a_copy_has_the_bytes_and_the_attributes_of_its_upload(harness: Any) -> None:
    store = harness.shared
    body, info = put_source(harness)
    attributes = ObjectAttributes(content_type="text/csv", metadata=(("colour", "blue"),))
    upload_id = store.create_copy_upload("to", attributes)
    parts = copy_parts(harness, upload_id, info)
    assert sum(part.size_bytes for part in parts) == len(body)
    listed = store.list_parts("to", upload_id)
    assert [(part.number, part.etag) for part in listed] == [
        (part.number, part.etag) for part in parts
    ]
    assert [row.key for row in store.list("")] == [KEY]
    done = store.complete_upload(
        "to", upload_id, parts, precondition=IF_ABSENT, size_bytes=len(body), crc32c=crc32c(body)
    )
    assert harness.read("to") == body
    assert done.crc32c in (None, crc32c(body))
    found = store.head("to").attributes
    assert (found.content_type, found.metadata) == ("text/csv", (("colour", "blue"),))
    assert list(store.list_uploads("")) == []


def test_checksums_of_copied_parts_are_those_of_their_bytes(harness: Any) -> None:
    body, info = put_source(harness)
    parts = copy_parts(harness, harness.shared.create_copy_upload("to"), info)
    known = [part.crc32c for part in parts if part.crc32c is not None]
    assert len(known) in (0, len(parts))
    whole = 0
    for part in parts:
        whole = combine(whole, part.crc32c or 0, part.size_bytes)
    assert not known or whole == crc32c(body)


def test_a_source_that_was_overwritten_is_not_copied(harness: Any) -> None:
    if "copy-source-pin" in harness.lacks:
        pytest.skip("this server ignores the version (s3/test_copies.py asserts the request)")
    _, info = put_source(harness)
    upload_id = harness.shared.create_copy_upload("to")
    put_source(harness, filler=b"other")
    with pytest.raises(PreconditionFailed):
        copy_parts(harness, upload_id, info)
    assert harness.shared.list_parts("to", upload_id) == ()


def test_a_source_that_is_gone_is_not_found(harness: Any) -> None:
    _, info = put_source(harness)
    upload_id = harness.shared.create_copy_upload("to")
    harness.shared.delete(KEY)
    with pytest.raises(NotFound):
        copy_parts(harness, upload_id, info)


def test_an_upload_that_is_over_takes_no_copies(harness: Any) -> None:
    if "no-such-upload" in harness.lacks:
        pytest.skip("this server does not know that an upload is over")
    _, info = put_source(harness)
    upload_id = harness.shared.create_copy_upload("to")
    harness.shared.abort_upload("to", upload_id)
    with pytest.raises(NotFound):
        copy_parts(harness, upload_id, info)
    assert list(harness.shared.list_uploads("")) == []


def test_a_part_may_be_copied_twice(harness: Any) -> None:
    body, info = put_source(harness)
    upload_id = harness.shared.create_copy_upload("to")
    copy_parts(harness, upload_id, info)
    parts = copy_parts(harness, upload_id, info)
    harness.shared.complete_upload(
        "to", upload_id, parts, size_bytes=len(body), crc32c=crc32c(body)
    )
    assert harness.read("to") == body


def test_a_late_copy_replaces_nothing(harness: Any) -> None:
    """The completion is fenced as any other: by what was listed."""
    body, info = put_source(harness)
    store = harness.shared
    listed = store.put("to", b"listed")
    late = store.create_copy_upload("to")
    parts = copy_parts(harness, late, info)
    newer = store.put("to", b"of a newer epoch")
    for lack, fence in (
        ("if-absent-on-completion", IF_ABSENT),
        ("if-match-on-completion", Precondition(if_match=listed.etag)),
    ):
        if lack not in harness.lacks:
            with pytest.raises(PreconditionFailed):
                store.complete_upload(
                    "to",
                    late,
                    parts,
                    precondition=fence,
                    size_bytes=len(body),
                    crc32c=crc32c(body),
                )
            assert store.head("to").etag == newer.etag
    store.abort_upload("to", late)
    assert list(store.list_uploads("")) == []


def test_a_copy_of_another_size_is_refused(harness: Any) -> None:
    body, info = put_source(harness)
    upload_id = harness.shared.create_copy_upload("to")
    parts = copy_parts(harness, upload_id, info)
    with pytest.raises(StoreError, match=r"bytes|size"):
        harness.shared.complete_upload("to", upload_id, parts, size_bytes=len(body) - 1)
