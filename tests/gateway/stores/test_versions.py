"""Buckets that keep old versions: the current one counts, and what was deleted is an absence."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import requests
from azure.storage.blob import BlobServiceClient, RetentionPolicy

from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.objects import IF_ABSENT, UNCONDITIONAL, Precondition
from skyplane_gateway.stores.base import read_object


def blob_service(harness: Any) -> BlobServiceClient:
    account, _, _ = harness.spec.bucket.partition("/")
    key = {"account_name": account, "account_key": harness.credentials["account_key"]}
    return BlobServiceClient(f"{harness.spec.endpoint_url}/{account}", credential=key)


def keep_versions(harness: Any) -> None:
    """On Azure: keep deleted blobs."""
    spec = harness.spec
    if spec.kind == "gcs":
        url = f"{spec.endpoint_url}/storage/v1/b/{spec.bucket}"
        answer = requests.patch(url, json={"versioning": {"enabled": True}}, timeout=10)
        answer.raise_for_status()
        return
    if spec.kind == "azure":
        with blob_service(harness) as service:
            policy = RetentionPolicy(enabled=True, days=7)
            service.set_service_properties(delete_retention_policy=policy)
        return
    with closing(harness.s3_client()) as client:
        status = {"Status": "Enabled"}
        client.put_bucket_versioning(Bucket=spec.bucket, VersioningConfiguration=status)


def deleted_names(harness: Any) -> list[str]:
    """The blobs of a container that are soft-deleted."""
    with harness.container_client() as client:
        return [row.name for row in client.list_blobs(include=["deleted"]) if row.deleted]


@pytest.mark.parametrize("harness", ["azure", "gcs", "s3", "versitygw"], indirect=True)
def test_only_current_versions_are_objects(harness: Any) -> None:
    keep_versions(harness)
    store = harness.shared
    first = store.put("changed", b"first")
    store.put("changed", b"second")
    store.put("gone", b"x")
    store.delete("gone")
    (listed,) = store.list("")
    info, body = read_object(store, "changed", max_bytes=100)
    assert (listed.key, listed.etag, body) == ("changed", info.etag, b"second")
    with pytest.raises(PreconditionFailed):
        store.read("changed", offset=0, length=5, if_match=first.etag)
    with pytest.raises(NotFound):
        store.head("gone")
    if harness.spec.kind == "azure":
        is_kept = "soft-delete" not in harness.lacks
        assert deleted_names(harness) == (["gone"] if is_kept else [])
    is_absent = "if-absent-over-delete-marker" not in harness.lacks
    store.put("gone", b"again", precondition=IF_ABSENT if is_absent else UNCONDITIONAL)
    assert harness.read("gone") == b"again"


def test_snapshots_are_no_objects_and_stay(azure: Any) -> None:
    store = azure.shared
    first = store.put("k", b"first")
    with azure.container_client() as client:
        client.get_blob_client("k").create_snapshot()
    second = store.put("k", b"second", precondition=Precondition(if_match=first.etag))
    assert [(row.key, row.etag) for row in store.list("")] == [("k", second.etag)]
    assert azure.read("k") == b"second"
    with pytest.raises(StoreError, match="snapshots") as caught:
        store.delete("k", if_match=second.etag)
    assert caught.value.is_permanent
    assert azure.read("k") == b"second"
