"""What an object has and a copy does not: each answer that tells of it gives its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from skyplane_gateway.stores.azure.requests import not_carried_of as azure_names
from skyplane_gateway.stores.gcs.requests import not_carried_of_headers, not_carried_of_resource
from skyplane_gateway.stores.s3.async_requests import _NAMES_OF_ANSWERS
from skyplane_gateway.stores.s3.requests import not_carried_of as s3_names

Names = Callable[[Mapping[str, Any]], tuple[str, ...]]


def s3_headers(headers: Mapping[str, str]) -> tuple[str, ...]:
    """As of a read over asyncio, which knows the headers that it names."""
    return s3_names({_NAMES_OF_ANSWERS[name]: text for name, text in headers.items()})


#: Store, an answer, and the names of what a copy lacks.
ANSWERS: list[tuple[Names, dict[str, Any], tuple[str, ...]]] = [
    (s3_names, {"ObjectLockMode": "GOVERNANCE"}, ("retention",)),
    (s3_names, {"ObjectLockLegalHoldStatus": "ON"}, ("hold",)),
    (s3_names, {"ObjectLockLegalHoldStatus": "OFF"}, ()),
    (s3_names, {"ObjectLockEventHold": "ON"}, ("hold",)),
    (s3_names, {"StorageClass": "STANDARD", "TagCount": 0}, ()),
    (s3_names, {"StorageClass": ""}, ()),
    (s3_names, {"StorageClass": "GLACIER_IR", "TagCount": 2}, ("tags", "storage-class")),
    (s3_names, {"WebsiteRedirectLocation": "/x"}, ("website-redirect",)),
    (s3_names, {"ExpiresString": "0"}, ("expires",)),
    (s3_names, {"MissingMeta": 2}, ("user-metadata",)),
    (s3_names, {"MissingMeta": 0}, ()),
    (s3_headers, {"x-amz-object-lock-mode": "COMPLIANCE"}, ("retention",)),
    (s3_headers, {"x-amz-object-lock-legal-hold": "ON"}, ("hold",)),
    (s3_headers, {"x-amz-object-lock-event-hold": "ON"}, ("hold",)),
    (s3_headers, {"x-amz-missing-meta": "1"}, ("user-metadata",)),
    (azure_names, {"x-ms-blob-type": "BlockBlob"}, ()),
    (azure_names, {"x-ms-blob-type": "PageBlob"}, ("blob-type",)),
    (azure_names, {"x-ms-blob-type": "AppendBlob"}, ("blob-type",)),
    (azure_names, {"x-ms-immutability-policy-until-date": "2027"}, ("retention",)),
    (azure_names, {"x-ms-legal-hold": "true"}, ("hold",)),
    (azure_names, {"x-ms-legal-hold": "false"}, ()),
    (azure_names, {"x-ms-expiry-time": "2027"}, ("expires",)),
    (not_carried_of_resource, {"storageClass": "STANDARD", "temporaryHold": False}, ()),
    (not_carried_of_resource, {"storageClass": "REGIONAL"}, ()),
    (not_carried_of_resource, {"temporaryHold": True}, ("hold",)),
    (not_carried_of_resource, {"eventBasedHold": True}, ("hold",)),
    (not_carried_of_resource, {"retention": {"mode": "Locked"}}, ("retention",)),
    (not_carried_of_resource, {"customTime": "2027"}, ("custom-time",)),
    (not_carried_of_resource, {"contexts": {"custom": {}}}, ("contexts",)),
    (not_carried_of_headers, {"x-goog-custom-time": "2027"}, ("custom-time",)),
]


@pytest.mark.parametrize(("names", "answer", "lost"), ANSWERS)
def test_what_an_answer_tells_is_named(
    names: Names, answer: dict[str, Any], lost: tuple[str, ...]
) -> None:
    assert names(answer) == lost


@pytest.mark.parametrize("harness", ["azure", "azure-async"], indirect=True)
@pytest.mark.parametrize("kind", ["BlockBlob", "PageBlob", "AppendBlob"])
@pytest.mark.parametrize("length", [0, 512])
def test_blobs_of_other_types_become_block_blobs(harness: Any, kind: str, length: int) -> None:
    with harness.container_client() as client:
        blob = client.get_blob_client("k")
        if kind == "AppendBlob":
            blob.create_append_blob()
            if length:
                blob.append_block(bytes(length))
        else:
            blob.upload_blob(bytes(length), blob_type=kind)
    lost = () if kind == "BlockBlob" else ("blob-type",)
    store = harness.shared
    (listed,) = store.list("")
    with store.read("k", offset=0, length=length, if_match=listed.etag) as reader:
        assert (listed.not_carried, store.head("k").not_carried) == (lost, lost)
        assert reader.not_carried == lost
