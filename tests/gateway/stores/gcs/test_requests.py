"""Requests to Google Cloud Storage, and its answers as values of this project."""

from __future__ import annotations

import gzip
import json
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from tests.faults import fake_gcs
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    CredentialsExpired,
    NotFound,
    PermissionDenied,
    Throttled,
)
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, Precondition
from skyplane_gateway.stores import StoreSpec, bucket_region
from skyplane_gateway.stores.gcs.requests import (
    MultipartRelatedBody,
    Urls,
    attributes_of_headers,
    attributes_of_resource,
    not_carried_of_headers,
)
from skyplane_gateway.stores.gcs.store import GcsStore


@pytest.fixture
def store(fake_gcs_url: str) -> GcsStore:
    return GcsStore(StoreSpec("gcs", fake_gcs.create_bucket(fake_gcs_url), fake_gcs_url))


def test_an_object_with_gzip_is_read_as_it_is_stored(store: GcsStore) -> None:
    body = gzip.compress(b"text " * 100)
    attributes = ObjectAttributes(content_type="text/plain", content_encoding="gzip")
    info = store.put("k", body, attributes=attributes)
    with store.read("k", offset=2, length=len(body) - 2, if_match=info.etag) as reader:
        found = bytearray(len(body) - 2)
        assert reader.readinto(memoryview(found)) == len(found)
        assert reader.attributes == attributes
    assert found == body[2:]


def test_a_read_names_its_range_and_version(scripted: ScriptedServer) -> None:
    headers = {"Content-Range": "bytes 3-4/9", "x-goog-generation": "7"}
    scripted.replies.append(Reply(206, b"ab", headers))
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url, None, (("user_project", "p"),)))
    with store.read("a/../b c", offset=3, length=2, if_match="7") as reader:
        assert reader.readinto(memoryview(bytearray(5))) == 2
    (request,) = scripted.requests
    assert request.path == "/bkt/a%2F..%2Fb%20c?userProject=p"
    sent = request.headers
    assert (sent["range"], sent["accept-encoding"]) == ("bytes=3-4", "gzip")
    assert sent["x-goog-if-generation-match"] == "7"
    # An endpoint that is not Google's gets no credentials of this machine.
    assert "authorization" not in sent


def test_a_delete_names_the_version(scripted: ScriptedServer) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies += [Reply(204), Reply(404), Reply(404)]
    store.delete("k", if_match="7")
    store.delete("k")
    with pytest.raises(NotFound):
        store.delete("k", if_match="7")
    urls = [urlsplit(request.path) for request in scripted.requests]
    assert {url.path for url in urls} == {"/storage/v1/b/bkt/o/k"}
    asked = [parse_qs(url.query).get("ifGenerationMatch") for url in urls]
    assert asked == [["7"], None, ["7"]]


def test_google_s_own_client_sends_each_request_once_and_no_other(scripted: ScriptedServer) -> None:
    """It would retry a 503, and ask for the bucket in a thread."""
    options = (("user_project", "p"),)
    credentials = Credentials({"access_token": "t", "expires_at": "1"})
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url, None, options), credentials)
    scripted.replies += [Reply(503, headers={"Retry-After": "7"}), Reply(401)]
    with pytest.raises(Throttled) as throttled:
        store._bucket.small_body("a/../b", "1", "reading")
    with pytest.raises(CredentialsExpired):
        store._bucket.small_body("k", "1", "reading")
    assert throttled.value.retry_after_s == 7
    assert [request.method for request in scripted.requests] == ["GET", "GET"]
    sent = scripted.requests[0]
    assert urlsplit(sent.path).path == "/download/storage/v1/b/bkt/o/a%2F..%2Fb"
    query = parse_qs(urlsplit(sent.path).query)
    assert (query["userProject"], query["generation"]) == (["p"], ["1"])
    assert sent.headers["authorization"] == "Bearer t"


def test_a_compose_request(scripted: ScriptedServer) -> None:
    """It deletes its sources itself; releases of Google's client before 3.11 cannot ask for it."""
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url, None, (("user_project", "p"),)))
    scripted.replies.append(Reply(503, headers={"Retry-After": "7"}))
    with pytest.raises(Throttled):
        store._bucket.compose(
            "a/../b",
            [("p", "1")],
            "completing",
            resource={"storageClass": "NEARLINE"},
            precondition=Precondition(if_absent=True),
        )
    (sent,) = scripted.requests
    assert (sent.method, urlsplit(sent.path).path) == (
        "POST",
        "/storage/v1/b/bkt/o/a%2F..%2Fb/compose",
    )
    query = parse_qs(urlsplit(sent.path).query)
    assert (query["userProject"], query["ifGenerationMatch"]) == (["p"], ["0"])
    assert json.loads(sent.body) == {
        "sourceObjects": [{"name": "p", "generation": "1"}],
        "destination": {"storageClass": "NEARLINE"},
        "deleteSourceObjects": True,
    }


def test_metadata_that_a_copy_loses(store: GcsStore) -> None:
    url = store._client.urls.upload("k")
    related = MultipartRelatedBody(
        {"storageClass": "NEARLINE", "customTime": "2026-01-01T00:00:00Z"}, b"x"
    )
    headers = {"Content-Type": related.content_type}
    requests.post(url, data=b"".join(related), headers=headers, timeout=10).raise_for_status()
    (row,) = store.list("")
    assert row.not_carried == store.head("k").not_carried == ("storage-class", "custom-time")


def test_a_copy_of_a_folder_s_mark_is_one(store: GcsStore) -> None:
    attributes = ObjectAttributes(metadata=(("hdi_isfolder", "true"),))
    store.put("a", b"", attributes=attributes)
    store.put("b", b"bytes", attributes=attributes)
    assert [row.is_folder for row in store.list("")] == [True, False]


def test_headers_of_a_read_become_attributes() -> None:
    headers = {
        "Content-Type": "text/csv",
        "X-Goog-Stored-Content-Encoding": "identity",
        "Cache-Control": "private, max-age=0",
        "x-goog-meta-Owner": "caf\u00e9".encode().decode("latin-1"),
        "x-goog-storage-class": "COLDLINE",
        "x-goog-custom-time": "2026-01-01T00:00:00Z",
    }
    assert attributes_of_headers(headers) == ObjectAttributes(
        content_type="text/csv", metadata=(("owner", "caf\u00e9"),)
    )
    assert not_carried_of_headers(headers) == ("storage-class", "custom-time")


def test_names_of_metadata_are_lower_case() -> None:
    found = attributes_of_resource({"metadata": {"Owner": "x"}, "cacheControl": ""})
    assert found == ObjectAttributes(metadata=(("owner", "x"),))


def test_addresses_of_google_and_of_a_private_endpoint() -> None:
    google = Urls(None, "b", "")
    assert google.object("a/b") == "https://storage.googleapis.com/storage/v1/b/b/o/a%2Fb"
    private = Urls("https://storage-x.p.googleapis.com/", "b", "")
    assert private.body("k") == "https://storage-x.p.googleapis.com/b/k"


def test_the_region_of_a_bucket(fake_gcs_url: str, scripted: ScriptedServer) -> None:
    spec = StoreSpec("gcs", fake_gcs.create_bucket(fake_gcs_url), fake_gcs_url)
    assert bucket_region(spec) == "us-central1"
    with pytest.raises(NotFound, match="no such bucket"):
        bucket_region(StoreSpec("gcs", "missing", fake_gcs_url))
    wide = {"kind": "storage#bucket", "location": "EU", "locationType": "multi-region"}
    scripted.replies += [Reply(200, json.dumps(wide).encode()), Reply(403)]
    with pytest.raises(ConfigurationInvalid, match="multi-region EU, not in one region; give the"):
        bucket_region(StoreSpec("gcs", "b", scripted.url))
    with pytest.raises(PermissionDenied, match=r"grant storage\.buckets\.get"):
        bucket_region(StoreSpec("gcs", "b", scripted.url))
