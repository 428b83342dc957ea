"""Options that travel with each request: through boto3, and over asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import CREDENTIALS, Reply, ScriptedServer, s3_client

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.kept_properties import CLASSES
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.s3.store import S3Store

BODY = b"body"
KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


#: Opens a store with options; also the client of a user who looks at its bucket.
Opener = Callable[..., tuple[ObjectStore, Any]]


@pytest.fixture(params=["boto3", "asyncio"])
def open_store(request: pytest.FixtureRequest, moto_url: str) -> Iterator[Opener]:
    with ExitStack() as stack:
        client = stack.enter_context(closing(s3_client(moto_url)))
        client.create_bucket(Bucket="parameters")

        def open_with(**options: str) -> tuple[ObjectStore, Any]:
            pairs = tuple((name.replace("_", "-"), text) for name, text in sorted(options.items()))
            spec = StoreSpec("s3", "parameters", moto_url, "us-east-1", pairs)
            store: Any = S3Store(spec, CREDENTIALS)
            stack.callback(store.close)
            return AsyncFirst(store) if request.param == "asyncio" else store, client

        yield open_with


def put_and_look(open_store: Opener, key: str = "key", **options: str) -> dict[str, Any]:
    store, client = open_store(**options)
    store.put(key, BODY, attributes=ObjectAttributes(), crc32c=crc32c(BODY))
    found: dict[str, Any] = client.head_object(Bucket="parameters", Key=key)
    return found


def test_a_write_is_encrypted_with_the_key(open_store: Opener) -> None:
    found = put_and_look(open_store, sse="aws:kms", sse_kms_key_id=KMS_KEY)
    assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", KMS_KEY)


def test_a_write_has_the_class_and_the_journal_has_not(open_store: Opener) -> None:
    assert put_and_look(open_store, storage_class="STANDARD_IA")["StorageClass"] == "STANDARD_IA"
    own = put_and_look(open_store, "p/.skyplane/jobs/1", storage_class="STANDARD_IA")
    assert "StorageClass" not in own


def test_an_upload_has_them_too(open_store: Opener) -> None:
    store, client = open_store(storage_class="ONEZONE_IA", acl="public-read")
    upload = store.create_upload("large")
    part = store.put_part("large", upload, 1, BODY, offset=0, crc32c=crc32c(BODY))
    store.complete_upload("large", upload, [part], size_bytes=len(BODY))
    found = client.head_object(Bucket="parameters", Key="large")
    assert found["StorageClass"] == "ONEZONE_IA"
    grants = client.get_object_acl(Bucket="parameters", Key="large")["Grants"]
    assert "READ" in [grant["Permission"] for grant in grants]


def test_every_request_says_who_pays_and_who_owns(scripted: ScriptedServer) -> None:
    answer = Reply(200, b"", {"ETag": '"e"', "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"})
    store = scripted.open(answer, **{"requester-pays": "true", "bucket-owner": "123456789012"})
    store.head("key")
    (request,) = scripted.requests
    assert request.headers["x-amz-request-payer"] == "requester"
    assert request.headers["x-amz-expected-bucket-owner"] == "123456789012"


def test_no_class_needs_a_restore() -> None:
    assert {"GLACIER", "DEEP_ARCHIVE"}.isdisjoint(CLASSES["s3"])
