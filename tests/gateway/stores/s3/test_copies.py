"""The requests of copies that S3 makes itself, and what answers to them mean."""

from __future__ import annotations

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.copy_source import CopiesParts, CopySource
from skyplane_gateway.stores.s3.store import S3Store

PART = b'<CopyPartResult><ETag>"p"</ETag><ChecksumCRC32C>AAAAAQ==</ChecksumCRC32C></CopyPartResult>'
CREATED = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
COMPLETED = b'<CompleteMultipartUploadResult><ETag>"w"</ETag></CompleteMultipartUploadResult>'


def source(**options: str) -> CopySource:
    bucket = StoreSpec("s3", "from", options=tuple(options.items()))
    return CopySource(bucket, "a b+ü", '"v"', 5, 10)


def copier(store: ObjectStore) -> CopiesParts:
    assert isinstance(store, CopiesParts)
    return store


def test_a_copy_is_pinned_to_the_version_and_owner_of_its_source(scripted: ScriptedServer) -> None:
    store = copier(scripted.open(Reply(200, PART), **{"bucket-owner": "111111111111"}))
    store.copy_part("k", "u", 3, source(**{"bucket-owner": "222222222222"}))
    (request,) = scripted.requests
    assert request.path == "/bkt/k?uploadId=u&partNumber=3"
    sent = {name: text for name, text in request.headers.items() if name.startswith("x-amz-")}
    assert sent["x-amz-copy-source"] == "from/a%20b%2B%C3%BC"
    assert sent["x-amz-copy-source-if-match"] == '"v"'
    assert sent["x-amz-copy-source-range"] == "bytes=5-14"
    assert sent["x-amz-source-expected-bucket-owner"] == "222222222222"
    assert sent["x-amz-expected-bucket-owner"] == "111111111111"


def test_only_aws_tells_the_checksum_of_a_copied_part(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """versitygw tells that of the whole source."""
    store = copier(scripted.open(Reply(200, PART), checksum="trusted"))
    assert store.copy_part("k", "u", 1, source()).crc32c is None
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", scripted.url)  # As AWS's own, for this test.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    scripted.replies.append(Reply(200, PART))
    aws = S3Store(StoreSpec("s3", "bkt", region="us-east-1"))
    assert aws.copy_part("k", "u", 1, source()).crc32c == 1
    aws.close()


def test_an_upload_of_parts_without_checksums_has_none(scripted: ScriptedServer) -> None:
    """Else the server would compare checksums that it computes wrongly."""
    head = Reply(200, b"", {"ETag": '"w"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
    replies = (Reply(200, CREATED), Reply(200, PART), Reply(200, COMPLETED), head)
    store = scripted.open(*replies, checksum="trusted")
    upload_id = copier(store).create_copy_upload("k")
    part = copier(store).copy_part("k", upload_id, 1, source())
    with pytest.raises(StoreError, match="0 bytes"):  # The scripted object is empty.
        store.complete_upload("k", upload_id, [part], size_bytes=10, crc32c=1)
    named = [name for row in scripted.requests[:3] for name in row.headers if "checksum" in name]
    assert named == []
    assert b"Checksum" not in scripted.requests[2].body


def test_a_server_without_this_request_is_not_asked_again(scripted: ScriptedServer) -> None:
    body = b"<Error><Code>NotImplemented</Code></Error>"
    store = copier(scripted.open(Reply(501, body)))
    with pytest.raises(StoreError, match="does not offer") as raised:
        store.copy_part("k", "u", 1, source())
    assert raised.value.is_permanent
