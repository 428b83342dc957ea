"""A completion whose object is at the store is a success, whatever the requests after it say."""

from __future__ import annotations

import json
import logging
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    Credentials,
    ObjectAttributes,
    PartInfo,
    StoreSpec,
)
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.azure.block_lists import BlockId
from skyplane_gateway.stores.registry import open_without_retries

BODY = b"some bytes"
CRC32C = crc32c(BODY)
UPLOAD = "0" * 32
#: What a request after the commit may be answered with; None breaks the connection.
AFTER = [500, 429, 403, 400, None]

Complete = Callable[[ObjectStore, str, list[PartInfo]], Any]


def complete(store: ObjectStore, upload_id: str, parts: list[PartInfo]) -> Any:
    return store.complete_upload(
        "k", upload_id, parts, precondition=IF_ABSENT, size_bytes=len(BODY), crc32c=CRC32C
    )


def gcs_answers() -> list[Any]:
    crc, of_marker = (
        b64encode(crc32c(body).to_bytes(4, "big")).decode()
        for body in (BODY, json.dumps(ObjectAttributes().to_dict()).encode())
    )
    time = "2026-11-23T10:00:00Z"
    row = {"kind": "storage#object", "size": str(len(BODY)), "timeCreated": time, "crc32c": crc}
    row["updated"] = time
    marker = {**row, "name": f".skyplane/uploads/{UPLOAD}.upload", "generation": "1"}
    marker["crc32c"] = of_marker
    part = {**row, "name": f".skyplane/uploads/{UPLOAD}/00001", "generation": "7"}
    made = {**row, "name": "k", "generation": "9"}
    page = {"kind": "storage#objects", "items": [part]}
    answers: list[object] = [marker, ObjectAttributes().to_dict(), page, made]
    return [Reply(200, json.dumps(answer).encode()) for answer in answers]


@pytest.mark.parametrize("status", AFTER)
@pytest.mark.parametrize("done", range(3), ids=["marker", "parts", "part"])
def test_google_deletes_of_parts(
    scripted: ScriptedServer, caplog: Any, done: int, status: int | None
) -> None:
    """The delete of the marker, the listing of the parts and the delete of a part may fail."""
    store = open_without_retries(StoreSpec("gcs", "bkt", scripted.url), None)
    answers = gcs_answers()
    broken = Reply(200, declared=9) if status is None else Reply(status)
    scripted.replies += [*answers, *(Reply(204), answers[2])[:done], broken, *[broken] * 9]
    info = complete(store, UPLOAD, [PartInfo(1, "7", len(BODY), CRC32C)])
    assert (info.etag, info.crc32c) == ("9", CRC32C)
    assert info.leftover
    assert "is written" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING


DONE = '<CompleteMultipartUploadResult><ETag>"e-1"</ETag>{}</CompleteMultipartUploadResult>'


@pytest.mark.parametrize("status", [status for status in AFTER if status is not None])
@pytest.mark.parametrize("trusted", [False, True])
def test_s3_head_of_the_object(
    scripted: ScriptedServer, caplog: Any, trusted: bool, status: int
) -> None:
    crc = b64encode(CRC32C.to_bytes(4, "big")).decode()
    sums = f"<ChecksumCRC32C>{crc}</ChecksumCRC32C><ChecksumType>FULL_OBJECT</ChecksumType>"
    date = {"Date": "Tue, 02 Jan 2024 03:04:05 GMT"}
    store = scripted.open(
        Reply(200, DONE.format(sums).encode(), date),
        *[Reply(status)] * 4,
        **({"checksum": "trusted"} if trusted else {}),
    )
    info = complete(store, "u", [PartInfo(1, '"e"', len(BODY), CRC32C)])
    assert (info.etag, info.size_bytes) == ('"e-1"', len(BODY))
    assert info.last_modified == 1704164645
    assert info.crc32c == (CRC32C if trusted else None)
    assert not info.leftover
    assert "cannot be looked at" in caplog.text


@pytest.mark.parametrize("status", [status for status in AFTER if status is not None])
@pytest.mark.parametrize("fails", ["marker", "head"])
def test_azure_marker_and_head(
    scripted: ScriptedServer, caplog: Any, fails: str, status: int
) -> None:
    key = Credentials({"account_key": b64encode(b"0" * 64).decode()})
    store = open_without_retries(StoreSpec("azure", "acc/box", scripted.url), key)
    block = BlockId(UPLOAD, 1, CRC32C, 0).text
    date = "Tue, 02 Jan 2024 03:04:05 GMT"
    made = {"etag": '"e"', "last-modified": date}
    marker = json.dumps({"key": "k", "attributes": ObjectAttributes().to_dict()}).encode()
    head = Reply(200, headers={**made, "Content-Length": str(len(BODY))})
    after = [Reply(status), head] if fails == "marker" else [Reply(202), Reply(status)]
    scripted.replies += [Reply(200, marker), Reply(201, headers=made), *after]
    info = complete(store, UPLOAD, [PartInfo(1, block, len(BODY), CRC32C)])
    assert (info.etag, info.size_bytes, info.last_modified) == ('"e"', len(BODY), 1704164645)
    assert bool(info.leftover) == (fails == "marker")
    assert caplog.records[-1].levelno == logging.WARNING


@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_conditional_delete_of_what_may_be_gone(
    scripted: ScriptedServer, kind: str, is_gone: bool
) -> None:
    """The condition fails, too, for a key that is gone; at S3 where a marker took its place."""
    key = Credentials({"account_key": b64encode(b"0" * 64).decode()})
    date = "Tue, 02 Jan 2024 03:04:05 GMT"
    head = Reply(200, headers={"ETag": '"new"', "Last-Modified": date, "Content-Length": "1"})
    refused = Reply(412, b"<Error><Code>PreconditionFailed</Code></Error>" * (kind == "s3"))
    if kind == "gcs":
        *_, head = gcs_answers()
    after = [refused, Reply(404) if is_gone else head]
    if kind == "s3":
        store = scripted.open(*after)
    else:
        scripted.replies += after
        bucket = "acc/box" if kind == "azure" else "bkt"
        store = open_without_retries(
            StoreSpec(kind, bucket, scripted.url), key if kind == "azure" else None
        )
    with pytest.raises(NotFound if is_gone else PreconditionFailed):
        store.delete("k", if_match="8" if kind == "gcs" else '"old"')


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Names that contain a text cannot be removed any more."""

    def refuse(name: str) -> None:
        inner = os.unlink

        def unlink(path: Any, **more: Any) -> None:
            if name in str(path):
                raise PermissionError(13, "not allowed", str(path))
            inner(path, **more)

        monkeypatch.setattr(os, "unlink", unlink)

    return refuse


def test_a_file_whose_temporary_name_stays(tmp_path: Path, stuck: Any, caplog: Any) -> None:
    store = open_without_retries(StoreSpec("file", str(tmp_path)), None)
    stuck(".skyplane-upload-")
    store.put("k", BODY, precondition=IF_ABSENT, crc32c=CRC32C)
    assert (tmp_path / "k").read_bytes() == BODY
    assert "stays" in caplog.text


@pytest.mark.parametrize("name", [".skyplane-upload-", ".parts"])
def test_a_file_in_parts_whose_temporary_names_stay(
    tmp_path: Path, stuck: Any, caplog: Any, name: str
) -> None:
    store = open_without_retries(StoreSpec("file", str(tmp_path)), None)
    upload_id = store.create_upload("k")
    part = store.put_part("k", upload_id, 1, BODY, offset=0, crc32c=CRC32C)
    stuck(name)
    info = complete(store, upload_id, [part])
    assert (tmp_path / "k").read_bytes() == BODY
    assert info.leftover
    assert "stays" in caplog.text
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]
    # An abort is no success while they stay.
    with pytest.raises(StoreError):
        store.abort_upload("k", upload_id)
