"""Requests over asyncio go where botocore's would go, with the signature that it would make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.objects import Credentials, ObjectInfo, StoreSpec
from skyplane_gateway.stores.async_requests import Unsettled
from skyplane_gateway.stores.s3.async_requests import S3AsyncRequests
from skyplane_gateway.stores.s3.signing import Signing
from skyplane_gateway.stores.s3.store import S3Store

KEYS = Credentials({"access_key_id": "AKID", "secret_access_key": "secret", "session_token": "t"})
DATE = "Mon, 23 Nov 2026 10:00:00 GMT"
ACCESS_POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine"
MULTI_REGION = "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap"


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def opened() -> Iterator[list[S3Store]]:
    stores: list[S3Store] = []
    yield stores
    for store in stores:
        store.close()


def signing(
    opened: list[S3Store],
    bucket: str,
    endpoint: str | None = None,
    region: str | None = "eu-west-3",
    credentials: Credentials | None = KEYS,
    **options: str,
) -> Signing | None:
    spec = StoreSpec("s3", bucket, endpoint, region, tuple(sorted(options.items())))
    store = S3Store(spec, credentials)
    opened.append(store)
    requests = store.async_requests
    assert requests is None or isinstance(requests, S3AsyncRequests)
    return None if requests is None else requests._signing


def test_an_access_point_is_asked_in_its_own_region(opened: list[S3Store]) -> None:
    found = signing(
        opened,
        ACCESS_POINT.replace("aws", "aws-cn").replace("eu-west-1", "cn-north-1"),
        region=None,
    )
    assert found is not None
    assert found.base_url == "https://mine-123456789012.s3-accesspoint.cn-north-1.amazonaws.com.cn/"
    assert found.region == "cn-north-1"


@pytest.mark.parametrize(
    ("bucket", "endpoint", "options", "url"),
    [
        ("bkt", None, {}, "https://bkt.s3.eu-west-3.amazonaws.com/"),
        ("with.dot", None, {}, "https://s3.eu-west-3.amazonaws.com/with.dot/"),
        ("bkt", None, {"addressing": "path"}, "https://s3.eu-west-3.amazonaws.com/bkt/"),
        ("bkt", "http://here:9/below", {}, "http://here:9/below/bkt/"),
        ("bkt", "http://here:9", {"addressing": "virtual"}, "http://bkt.here:9/"),
        (
            ACCESS_POINT,
            None,
            {},
            "https://mine-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/",
        ),
    ],
)
def test_the_url_of_a_bucket(
    opened: list[S3Store], bucket: str, endpoint: str | None, options: dict[str, str], url: str
) -> None:
    region = "eu-west-1" if bucket == ACCESS_POINT else "eu-west-3"
    found = signing(opened, bucket, endpoint, region, KEYS, **options)
    assert found is not None
    assert found.base_url == url
    assert (found.region, found.service) == (region, "s3")


def test_dual_stack_and_fips_of_the_environment(
    opened: list[S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    found = signing(opened, "bkt", region="us-east-1")
    assert found is not None
    assert found.base_url == "https://bkt.s3-fips.dualstack.us-east-1.amazonaws.com/"


def test_the_endpoint_of_a_profile(
    opened: list[S3Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "AWS_CONFIG_FILE").write_text(
        "[profile own]\nendpoint_url = http://profile:1\ns3 =\n    addressing_style = path\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "own")
    found = signing(opened, "bkt", addressing="path")
    assert found is not None
    assert found.base_url == "http://profile:1/bkt/"


def test_a_proxy_and_the_exceptions_from_it(
    opened: list[S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    found = signing(opened, "bkt")
    inside = signing(opened, "bkt", "https://inside.example")
    assert found is not None
    assert inside is not None
    assert (found.way.proxy, inside.way.proxy) == ("http://proxy:3128", None)


def test_a_request_of_another_thread_is_sent_while_the_url_is_found(
    opened: list[S3Store], scripted: ScriptedServer
) -> None:
    """Both threads use one client; the request that finds the URL is never sent."""
    store = S3Store(scripted.spec(), KEYS)
    opened.append(store)
    scripted.replies.append(Reply(200, headers={"ETag": '"e"', "Last-Modified": DATE}))
    found: list[ObjectInfo] = []

    def look_elsewhere(**_: Any) -> None:
        """Comes before the handler that keeps the request from being sent."""
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=lambda: found.append(store.head("other")))
            other.start()
            other.join(30)

    store._bucket.client.meta.events.register_first("before-send.s3.HeadObject", look_elsewhere)
    requests = store.async_requests
    assert isinstance(requests, S3AsyncRequests)
    assert requests._signing.base_url == f"{scripted.url}/bkt/"
    assert [info.etag for info in found] == ['"e"']
    assert [(sent.method, sent.path) for sent in scripted.requests] == [("HEAD", "/bkt/other")]


def test_a_multi_region_access_point_is_left_to_boto3(opened: list[S3Store]) -> None:
    """It needs a signature of several regions."""
    assert signing(opened, MULTI_REGION) is None


def test_a_request_is_signed_for_its_host_and_carries_the_token(opened: list[S3Store]) -> None:
    found = signing(opened, "bkt")
    assert found is not None
    url, headers = found.sign("PUT", "a b/ü+", {"x-amz-meta-one": "1"}, b"body")
    assert url == "https://bkt.s3.eu-west-3.amazonaws.com/a%20b/%C3%BC%2B"
    assert headers["X-Amz-Security-Token"] == "t"
    assert headers["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    assert "host;" in headers["Authorization"]
    assert "x-amz-meta-one" in headers["Authorization"]


def test_an_anonymous_request_has_no_signature(opened: list[S3Store]) -> None:
    found = signing(opened, "bkt", credentials=None, anonymous="true")
    assert found is not None
    assert found.sign("GET", "key", {"Range": "bytes=0-1"})[1] == {"Range": "bytes=0-1"}


def test_credentials_that_have_to_be_refreshed_wait_in_a_thread(opened: list[S3Store]) -> None:
    found = signing(opened, "bkt")
    assert found is not None
    assert found.credentials is not None
    found.credentials.refresh_needed = lambda: True  # type: ignore[attr-defined]
    with pytest.raises(Unsettled):
        found.sign("GET", "key", {})
