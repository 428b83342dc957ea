"""Requests of stores that their vendors would not know fail the test that sends them."""

from __future__ import annotations

import asyncio

import pytest
import requests
import urllib3
from botocore.exceptions import ClientError
from tests.faults.gcs_models import of_gcs
from tests.gateway.stores.scripted import Reply, ScriptedServer, s3_client
from tests.gateway.stores.vendor_models import SEEN, of_azure, of_s3_headers

from skyplane_gateway.stores.gcs import async_requests as gcs_requests
from skyplane_gateway.stores.tls_and_proxy import tls_and_proxy_to
from strict_clouds.schemas import ModelViolation, Violations

_GOOGLE = "http://localhost/storage/v1/b/bucket-one/o"


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("GET", "?prefix=a&maxResults=9", b"", []),
        ("GET", "?colour=red", b"", ["no parameter colour"]),
        ("GET", "?maxResults=all", b"", ["maxResults: all is no whole number"]),
        (
            "POST",
            "/k/compose",
            b'{"colour": 1}',
            ["there is no colour", "sourceObjects is missing"],
        ),
        ("PUT", "/k/rewrite", b"", ["Google has no PUT /storage/v1/b/bucket-one/o/k/rewrite"]),
        ("POST", "/k/compose", b'{"sourceObjects": [{"name": 1}]}', ["sourceObjects[0].name is 1"]),
    ],
)
def test_requests_to_google(method: str, path: str, body: bytes, said: list[str]) -> None:
    _, found = of_gcs(method, _GOOGLE + path, {}, body)
    texts = list(found)
    assert len(texts) == len(said)
    assert all(text.startswith(part) for text, part in zip(texts, said, strict=True))


def test_requests_to_azure() -> None:
    headers = {"x-ms-version": "2026-13-01", "x-ms-colour": "red", "x-ms-meta-colour": "red"}
    assert list(of_azure("http://localhost/a/c?comp=list&colour=red", headers)) == [
        "Azure has no parameter colour",
        "Azure has no header x-ms-colour",
        "Azure has no version 2026-13-01",
    ]


def test_requests_to_s3_without_the_sdk() -> None:
    headers = {"x-amz-storage-class": "CHEAP", "x-amz-colour": "red", "x-amz-meta-colour": "red"}
    cheap, colour = of_s3_headers("PUT", "http://localhost/bucket/k", headers)
    assert "'CHEAP' is none of STANDARD" in cheap
    assert colour == "S3 has no x-amz-colour in PutObject"


def test_every_way_out_is_seen(scripted: ScriptedServer) -> None:
    """boto3, requests, urllib3, and the own client over asyncio."""
    scripted.replies += [Reply(400), Reply(400), Reply(400), Reply(400)]
    with pytest.raises(ClientError):
        s3_client(scripted.url).put_object(Bucket="bucket", Key="k", StorageClass="CHEAP")
    with pytest.raises(ModelViolation, match=r"PutObject: StorageClass: 'CHEAP'"):
        SEEN.violations.require_none()
    SEEN.violations = Violations()
    where = f"{scripted.url}/storage/v1/b/bucket-one/o?colour=red"
    requests.get(where, timeout=5)
    with pytest.raises(ModelViolation, match=r"objects\.list: no parameter colour"):
        SEEN.violations.require_none()
    SEEN.violations = Violations()
    headers = {"x-ms-version": "2023-11-03", "x-ms-colour": "red"}
    urllib3.PoolManager().request("GET", scripted.url, headers=headers)
    with pytest.raises(ModelViolation, match="no header x-ms-colour"):
        SEEN.violations.require_none()
    SEEN.violations = Violations()
    way = tls_and_proxy_to(scripted.url)
    send = vars(gcs_requests)["send"]
    asyncio.run(send("GET", where, {}, b"", expected=400, way=way))
    with pytest.raises(ModelViolation, match="no parameter colour"):
        SEEN.violations.require_none()
    SEEN.violations = Violations()
