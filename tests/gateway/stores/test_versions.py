"""Buckets that keep versions: the current version counts, and a delete marker is an absence."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
import requests

from skyplane_gateway.errors import NotFound, PreconditionFailed
from skyplane_gateway.objects import IF_ABSENT
from skyplane_gateway.stores.base import read_object


def keep_versions(harness: Any) -> None:
    spec = harness.spec
    if spec.kind == "gcs":
        url = f"{spec.endpoint_url}/storage/v1/b/{spec.bucket}"
        answer = requests.patch(url, json={"versioning": {"enabled": True}}, timeout=10)
        answer.raise_for_status()
        return
    client = boto3.client(
        "s3",
        endpoint_url=spec.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=harness.credentials["access_key_id"],
        aws_secret_access_key=harness.credentials["secret_access_key"],
    )
    client.put_bucket_versioning(Bucket=spec.bucket, VersioningConfiguration={"Status": "Enabled"})
    client.close()


@pytest.mark.parametrize("harness", ["s3", "gcs", "gcs-async"], indirect=True)
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
    store.put("gone", b"again", precondition=IF_ABSENT)
    assert harness.read("gone") == b"again"
