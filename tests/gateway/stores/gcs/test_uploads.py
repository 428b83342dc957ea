"""Multipart uploads of Google Cloud Storage: parts are objects, joined by compose requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.faults import fake_gcs, strict_gcs
from tests.gateway.stores.by_sink import complete_by_sink
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    InvalidKey,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, PartInfo
from skyplane_gateway.journal.cleanup import CleanupResult
from skyplane_gateway.journal.document import Journal, UploadRow
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.orphans import find_transfers
from skyplane_gateway.stores import StoreSpec, open_store
from skyplane_gateway.stores.checksums import crc32c_text
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.gcs import compose, uploads
from skyplane_gateway.stores.gcs.bucket import GcsBucket
from skyplane_gateway.stores.gcs.client import GcsClient
from skyplane_gateway.stores.gcs.store import GcsStore
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER

# Multipart uploads of Google Cloud Storage: parts are objects, joined by compose requests.


ATTRIBUTES = ObjectAttributes(content_type="text/csv", metadata=(("a", "b"),))
Raw = Callable[[], list[str]]


@pytest.fixture
def store(fake_gcs_url: str) -> GcsStore:
    return GcsStore(StoreSpec("gcs", fake_gcs.create_bucket(fake_gcs_url), fake_gcs_url))


@pytest.fixture
def temporary(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> Raw:
    """Lists the objects of open uploads, which `GcsStore.list` hides."""

    def names() -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr("skyplane_gateway.stores.gcs.listing.UPLOADS_FOLDER", "nothing/")
            return [info.key for info in store.list(".skyplane/uploads/")]

    return names


def begin(
    store: GcsStore,
    bodies: list[bytes],
    key: str = "k",
    attributes: ObjectAttributes | None = ATTRIBUTES,
) -> tuple[str, list[PartInfo]]:
    upload_id, parts, offset = store.create_upload(key, attributes), [], 0
    for number, body in enumerate(bodies, 1):
        checksum = crc32c(body)
        parts.append(store.put_part(key, upload_id, number, body, offset=offset, crc32c=checksum))
        offset += len(body)
    return upload_id, parts


def test_parts_that_cannot_be_deleted_are_left_for_a_sweep(
    fake_gcs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the retries of a gateway: the object is complete, and the upload is found and ended."""
    spec = StoreSpec("gcs", fake_gcs.create_bucket(fake_gcs_url), fake_gcs_url)
    gateways = open_store(spec)
    upload_id = gateways.create_upload("out/k")
    part = gateways.put_part("out/k", upload_id, 1, b"body", offset=0, crc32c=crc32c(b"body"))
    with monkeypatch.context() as patch:

        def refused(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("500")

        patch.setattr(GcsBucket, "delete", refused)
        done = gateways.complete_upload("out/k", upload_id, [part], size_bytes=4)
    assert (done.size_bytes, done.leftover) == (4, "500")
    assert [row.upload_id for row in gateways.list_uploads("out/")] == [upload_id]
    row = UploadRow("out/k", upload_id, "k", "v", 4, 4)
    journal = Journal("ab" * 16, 1, "r", 1, writer="w", sequence=1, uploads=(row,))
    JournalFolder(gateways, "out/", "ab" * 16).write(journal, None)
    (left,) = find_transfers(gateways, "")
    assert left.remove(gateways) == CleanupResult()
    assert list(gateways.list_uploads("")) == []
    assert [info.key for info in gateways.list("")] == ["out/k"]


def test_a_refused_completion_keeps_the_upload_open(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, parts = begin(store, [b"late!"])
    store.put("k", b"early")

    def refused(*_: Any, **__: Any) -> Any:
        raise PreconditionFailed("there is another object")

    monkeypatch.setattr(GcsBucket, "compose", refused)
    with pytest.raises(PreconditionFailed):
        store.complete_upload("k", upload_id, parts, precondition=IF_ABSENT, size_bytes=5)
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]
    assert len(store.list_parts("k", upload_id)) == 1


def test_a_part_that_comes_after_the_abort_removes_itself(
    store: GcsStore, temporary: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, _ = begin(store, [b"one"])
    inner = GcsBucket.insert

    def aborted_meanwhile(self: GcsBucket, *arguments: Any, **more: Any) -> Any:
        store.abort_upload("k", upload_id)
        return inner(self, *arguments, **more)

    monkeypatch.setattr(GcsBucket, "insert", aborted_meanwhile)
    with pytest.raises(NotFound):
        store.put_part("k", upload_id, 2, b"two", offset=3, crc32c=crc32c(b"two"))
    assert temporary() == []


def test_parts_without_a_marker_are_found_and_removed(store: GcsStore, temporary: Raw) -> None:
    """A process died between the removal of the marker and that of the parts."""
    upload_id, _ = begin(store, [b"one", b"two"], key="a folder/b c")
    other, _ = begin(store, [b"x"], key="other")
    store._bucket.delete(f".skyplane/uploads/{upload_id}.upload", "deleting the marker")
    found = {row.upload_id: row.key for row in store.list_uploads("")}
    assert found == {upload_id: "a folder/b c", other: "other"}
    store.abort_upload("a folder/b c", upload_id)
    store.abort_upload("other", other)
    assert temporary() == []


def test_a_key_in_the_folder_of_uploads_is_refused(store: GcsStore) -> None:
    with pytest.raises(InvalidKey, match="open uploads"):
        store.put(".skyplane/uploads/x", b"")


def test_the_compose_request_pins_parts_and_the_object(scripted: ScriptedServer) -> None:
    """The emulator reads neither generations nor preconditions of this request."""
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    time = "2026-11-23T10:00:00Z"
    row = {"kind": "storage#object", "size": "3", "crc32c": "AAAAAA==", "timeCreated": time}
    row["updated"] = time
    upload_id, key = "0" * 32, "a/b"
    part = {**row, "name": f".skyplane/uploads/{upload_id}/00001", "generation": "7"}
    done = {**row, "name": key, "generation": "9"}
    marker = {**row, "name": f".skyplane/uploads/{upload_id}.upload", "generation": "1"}
    marker["crc32c"] = crc32c_text(crc32c(json.dumps(ATTRIBUTES.to_dict()).encode()))
    page = {"kind": "storage#objects"}
    answers = [marker, ATTRIBUTES.to_dict(), {**page, "items": [part]}, done, None, page]
    scripted.replies += [Reply(200, json.dumps(answer).encode()) for answer in answers]
    parts = [PartInfo(1, "7", 3, 0)]
    store.complete_upload(key, upload_id, parts, precondition=IF_ABSENT, size_bytes=3)
    request = scripted.requests[3]
    url = urlsplit(request.path)
    assert url.path == "/storage/v1/b/bkt/o/a%2Fb/compose"
    assert parse_qs(url.query)["ifGenerationMatch"] == ["0"]
    assert json.loads(request.body) == {
        "sourceObjects": [{"name": part["name"], "generation": "7"}],
        "destination": {"contentType": "text/csv", "metadata": {"a": "b"}},
        "deleteSourceObjects": True,
    }


def test_a_bucket_that_keeps_all_objects_takes_no_parts(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, inner = {"retentionExpirationTime": "2027-01-01T00:00:00Z"}, GcsBucket.insert
    monkeypatch.setattr(GcsBucket, "insert", lambda *a, **more: {**inner(*a, **more), **kept})
    with pytest.raises(StoreError, match="retention policy") as caught:
        store.create_upload("k")
    assert caught.value.is_permanent


def test_a_marker_is_small_and_names_the_key(store: GcsStore, temporary: Raw) -> None:
    upload_id = store.create_upload("caf\u00e9/x")
    assert temporary() == [f".skyplane/uploads/{upload_id}.upload"]
    assert uploads._ID.match(upload_id)
    (row,) = store.list_uploads("caf\u00e9/")
    assert row.key == "caf\u00e9/x"


# -- parts that the service copies itself


def source_of(store: GcsStore, body: bytes) -> CopySource:
    info = store.put("from", body)
    return CopySource(store.spec, "from", info.etag, 0, len(body))


def test_a_copy_that_takes_several_requests(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service answers before the end, with a token for the rest."""
    source = source_of(store, b"body")
    inner, sent = GcsClient.send_for_json, list[str]()

    def slowly(
        self: GcsClient, method: str, url: str, what: str, kind: str, **more: Any
    ) -> dict[str, Any]:
        answer = inner(self, method, url, what, kind, **more)
        if "rewriteTo" in url:
            sent.append(url)
            if len(sent) < 3:
                return {"done": False, "rewriteToken": f"token {len(sent)}"}
        return answer

    monkeypatch.setattr(GcsClient, "send_for_json", slowly)
    part = store.copy_part("k", store.create_upload("k"), 1, source)
    assert (part.size_bytes, part.crc32c) == (4, crc32c(b"body"))
    tokens = [parse_qs(urlsplit(url).query).get("rewriteToken") for url in sent]
    assert tokens == [None, ["token 1"], ["token 2"]]
    assert all(f"sourceGeneration={source.etag}" in url for url in sent)


def test_a_copy_that_does_not_go_on_is_an_error(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(store, b"body")
    monkeypatch.setattr(GcsClient, "send_for_json", lambda *_, **__: {"done": False})
    with pytest.raises(StoreUnavailable, match="has no rewriteToken"):
        store.copy_part("k", "ab" * 16, 1, source)


def test_a_copy_that_ends_after_its_upload_removes_itself(
    store: GcsStore, temporary: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, upload_id = source_of(store, b"body"), store.create_upload("k")
    inner = GcsBucket.copy_from

    def late(self: GcsBucket, *arguments: Any) -> Any:
        store.abort_upload("k", upload_id)
        return inner(self, *arguments)

    monkeypatch.setattr(GcsBucket, "copy_from", late)
    with pytest.raises(NotFound, match="completed or aborted"):
        store.copy_part("k", upload_id, 1, source)
    assert temporary() == []


# Uploads to a store that refuses what Google refuses: classes, sources, writes a second.


@pytest.fixture
def google(fake_gcs_url: str) -> Iterator[strict_gcs.StrictGcs]:
    with strict_gcs.running(fake_gcs_url) as proxy:
        yield proxy


def opened(google: strict_gcs.StrictGcs, default: str = "STANDARD", option: str = "") -> GcsStore:
    bucket = fake_gcs.create_bucket(google.url)
    google.default_classes[bucket] = default
    options = (("storage-class", option),) if option else ()
    return GcsStore(StoreSpec("gcs", bucket, google.url, None, options))


def completed(store: GcsStore, upload_id: str, parts: list[PartInfo], whole: bytes) -> Any:
    more: Any = {"size_bytes": len(whole), "crc32c": crc32c(whole)}
    return store.complete_upload("k", upload_id, parts, precondition=IF_ABSENT, **more)


def numbered(count: int) -> list[bytes]:
    return [b"part %d," % number for number in range(1, count + 1)]


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
    bodies = numbered(count)
    whole = b"".join(bodies)
    upload_id, parts = begin(store, bodies, attributes=attributes)
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
    bodies = numbered(2)
    upload_id, parts = begin(store, bodies)
    whole = b"".join(bodies)
    google.default_classes[store.spec.bucket] = "NEARLINE"
    completed(store, upload_id, parts, whole)
    assert google.class_of(store.spec.bucket, "k") == "STANDARD"
    store.delete("k")
    google.let_a_second_pass()
    bodies = numbered(2)
    upload_id, parts = begin(store, bodies)
    whole = b"".join(bodies)
    google.default_classes[store.spec.bucket] = "COLDLINE"
    parts.append(store.put_part("k", upload_id, 3, b"x", offset=len(whole), crc32c=crc32c(b"x")))
    with pytest.raises(ChecksumMismatch, match="several storage classes"):
        completed(store, upload_id, parts, whole + b"x")


def test_the_precondition_holds(google: strict_gcs.StrictGcs) -> None:
    store = opened(google)
    bodies = numbered(2)
    upload_id, parts = begin(store, bodies)
    whole = b"".join(bodies)
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
    store, asked, inner = opened(google, "NEARLINE"), 0, GcsBucket.compose

    def lost(self: GcsBucket, *arguments: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        made = inner(self, *arguments, **more)
        if asked == nth:
            raise StoreUnavailable("the connection broke")
        return made

    monkeypatch.setattr(GcsBucket, "compose", lost)
    bodies = numbered(11)
    upload_id, parts = begin(store, bodies)
    whole = b"".join(bodies)
    for _ in range(2):
        try:
            complete_by_sink(store, upload_id, parts, whole)
            break
        except StoreUnavailable:
            continue
    assert store.head("k").crc32c == crc32c(whole)
    assert [name for name, _ in google.soft_deleted] == [f".skyplane/uploads/{upload_id}.upload"]
    assert list(store.list_uploads("")) == []


def test_joined_parts_of_a_killed_abort_are_found_and_removed(
    google: strict_gcs.StrictGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker is gone, and so is every part: their names were in these alone."""
    store = opened(google)
    bodies = numbered(33)
    upload_id, parts = begin(store, bodies)
    whole = b"".join(bodies)
    honest = GcsBucket.compose

    def fail(self: GcsBucket, key: str, *arguments: Any, **more: Any) -> Any:
        if key == "k":
            raise StoreUnavailable("down")
        return honest(self, key, *arguments, **more)

    monkeypatch.setattr(GcsBucket, "compose", fail)
    with pytest.raises(StoreUnavailable):
        completed(store, upload_id, parts, whole)
    store._bucket.delete(f"{UPLOADS_FOLDER}{upload_id}.upload", "killed")
    assert [row.key for row in store.list_uploads("")] == ["k"]
    store.abort_upload("k", upload_id)
    assert list(store.list_uploads("")) == []
    assert list(store._uploads._rows(upload_id, "looking")) == []
