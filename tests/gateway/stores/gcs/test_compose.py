"""Uploads to a store that refuses what Google refuses: classes, sources, writes a second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults import fake_gcs, strict_gcs

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import ChecksumMismatch, PreconditionFailed, StoreUnavailable
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, PartInfo
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.gcs import compose
from skyplane_gateway.stores.gcs.bucket import Bucket
from skyplane_gateway.stores.gcs.store import GcsStore
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER


@pytest.fixture
def google(fake_gcs_url: str) -> Iterator[strict_gcs.StrictGcs]:
    with strict_gcs.running(fake_gcs_url) as proxy:
        yield proxy


def opened(google: strict_gcs.StrictGcs, default: str = "STANDARD", option: str = "") -> GcsStore:
    bucket = fake_gcs.create_bucket(google.url)
    google.default_classes[bucket] = default
    options = (("storage-class", option),) if option else ()
    return GcsStore(StoreSpec("gcs", bucket, google.url, None, options))


def sent(
    store: GcsStore, count: int, attributes: ObjectAttributes | None = None
) -> tuple[str, list[PartInfo], bytes]:
    upload_id, parts, whole = store.create_upload("k", attributes), [], b""
    for number in range(1, count + 1):
        body = b"part %d," % number
        part = store.put_part("k", upload_id, number, body, offset=len(whole), crc32c=crc32c(body))
        parts.append(part)
        whole += body
    return upload_id, parts, whole


def completed(store: GcsStore, upload_id: str, parts: list[PartInfo], whole: bytes) -> Any:
    return store.complete_upload(
        "k",
        upload_id,
        parts,
        precondition=IF_ABSENT,
        size_bytes=len(whole),
        crc32c=crc32c(whole),
    )


@pytest.mark.parametrize(
    ("default", "option", "kept", "made", "count"),
    [
        ("STANDARD", "", None, "STANDARD", 1),
        ("NEARLINE", "", None, "NEARLINE", 33),
        ("ARCHIVE", "", None, "ARCHIVE", 1),
        ("STANDARD", "COLDLINE", None, "COLDLINE", 2),
        ("NEARLINE", "STANDARD", None, "STANDARD", 33),
        ("STANDARD", "keep", "NEARLINE", "NEARLINE", 33),
        ("COLDLINE", "keep", "STANDARD", "STANDARD", 1),
    ],
)
def test_parts_have_the_class_of_their_object(
    google: strict_gcs.StrictGcs, default: str, option: str, kept: str | None, made: str, count: int
) -> None:
    store = opened(google, default, option)
    attributes = ObjectAttributes(content_type="text/csv", storage_class=kept)
    upload_id, parts, whole = sent(store, count, attributes)
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]
    done = completed(store, upload_id, parts, whole)
    assert (done.crc32c, google.class_of(store.spec.bucket, "k")) == (crc32c(whole), made)
    assert max(google.composed) <= 32
    # Each source was removed by its compose request: no fee, no soft-deleted part.
    assert [name for name, _ in google.soft_deleted] == [f".skyplane/uploads/{upload_id}.upload"]


@pytest.mark.parametrize("option", ["", "COLDLINE"])
def test_a_copied_part_has_the_class_too(google: strict_gcs.StrictGcs, option: str) -> None:
    source, store = opened(google), opened(google, "NEARLINE", option)
    info = source.put("s", b"body")
    upload_id = store.create_copy_upload("k")
    copied = CopySource(source.spec, "s", info.etag, 0, 4)
    part = store.copy_part("k", upload_id, 1, copied)
    completed(store, upload_id, [part], b"body")
    assert google.class_of(store.spec.bucket, "k") == (option or "NEARLINE")


def test_the_class_of_the_bucket_may_change_during_an_upload(
    google: strict_gcs.StrictGcs,
) -> None:
    """The object has the class of its parts; parts of two classes are sent again."""
    store = opened(google)
    upload_id, parts, whole = sent(store, 2)
    google.default_classes[store.spec.bucket] = "NEARLINE"
    completed(store, upload_id, parts, whole)
    assert google.class_of(store.spec.bucket, "k") == "STANDARD"
    store.delete("k")
    google.let_a_second_pass()
    upload_id, parts, whole = sent(store, 2)
    google.default_classes[store.spec.bucket] = "COLDLINE"
    parts.append(store.put_part("k", upload_id, 3, b"x", offset=len(whole), crc32c=crc32c(b"x")))
    with pytest.raises(ChecksumMismatch, match="several storage classes"):
        completed(store, upload_id, parts, whole + b"x")


def test_the_precondition_holds(google: strict_gcs.StrictGcs) -> None:
    store = opened(google)
    upload_id, parts, whole = sent(store, 2)
    store.put("k", b"another")
    google.let_a_second_pass()
    with pytest.raises(PreconditionFailed):
        completed(store, upload_id, parts, whole)


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_completion_goes_on_where_an_answer_was_lost(
    google: strict_gcs.StrictGcs, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Sources are gone then: what was made of them stands for them, on each level."""
    monkeypatch.setattr(compose, "MAX_SOURCES", 3)
    monkeypatch.setattr(compose, "_AT_ONCE", 1)
    store, asked, inner = opened(google, "NEARLINE"), 0, Bucket.compose

    def lost(self: Bucket, *arguments: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        made = inner(self, *arguments, **more)
        if asked == nth:
            raise StoreUnavailable("the connection broke")
        return made

    monkeypatch.setattr(Bucket, "compose", lost)
    upload_id, parts, whole = sent(store, 11)
    for _ in range(2):
        try:
            done = completed(store, upload_id, parts, whole)
            break
        except StoreUnavailable:
            continue
    assert done.crc32c == crc32c(whole)
    assert [name for name, _ in google.soft_deleted] == [f".skyplane/uploads/{upload_id}.upload"]
    assert list(store.list_uploads("")) == []


def test_joined_parts_of_a_killed_abort_are_found_and_removed(
    google: strict_gcs.StrictGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker is gone, and so is every part: their names were in these alone."""
    store = opened(google)
    upload_id, parts, whole = sent(store, 33)
    honest = Bucket.compose

    def fail(self: Bucket, key: str, *arguments: Any, **more: Any) -> Any:
        if key == "k":
            raise StoreUnavailable("down")
        return honest(self, key, *arguments, **more)

    monkeypatch.setattr(Bucket, "compose", fail)
    with pytest.raises(StoreUnavailable):
        completed(store, upload_id, parts, whole)
    store._bucket.delete(f"{UPLOADS_FOLDER}{upload_id}.upload", "killed")
    assert [row.key for row in store.list_uploads("")] == ["k"]
    store.abort_upload("k", upload_id)
    assert list(store.list_uploads("")) == []
    assert list(store._uploads._rows(upload_id, "looking")) == []
