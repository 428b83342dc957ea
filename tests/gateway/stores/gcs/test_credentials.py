"""Google credentials, by google-auth itself, with a token service of our own."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    StoreUnavailable,
    Unauthenticated,
)
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores import (
    ambient_credentials,
    is_google,
    open_store,
    sendable_credentials,
)
from skyplane_gateway.stores.gcs import credentials as gcs_credentials
from skyplane_gateway.stores.gcs.store import GcsStore

STORAGE = "https://www.googleapis.com/auth/devstorage.read_write"


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))


def token(value: str = "ya29.x", seconds: int = 3600) -> Any:
    body = {"access_token": value, "expires_in": seconds, "token_type": "Bearer"}
    return Reply(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def test_a_key_becomes_a_token_that_expires(scripted: ScriptedServer, service_account: str) -> None:
    scripted.replies.append(token())
    found = sendable_credentials("gcs", {"service_account_json": service_account})
    assert found is not None
    assert found["access_token"] == "ya29.x"
    assert 3500 < float(found["expires_at"]) - time.time() <= 3600
    assert set(found) == {"access_token", "expires_at"}
    (request,) = scripted.requests
    assert parse_qs(request.body.decode())["grant_type"][0].endswith("jwt-bearer")


def test_the_identity_of_this_process(
    scripted: ScriptedServer, service_account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ambient_credentials("gcs") is None
    assert sendable_credentials("gcs", {"impersonate": "a@b"}) is None
    (tmp_path / "key.json").write_text(service_account)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    scripted.replies += [token("mine"), token("named")]
    found = ambient_credentials("gcs")
    assert found is not None
    assert found["access_token"] == "mine"
    named = sendable_credentials("gcs", {"service_account_file": str(tmp_path / "key.json")})
    assert named is not None
    assert named["access_token"] == "named"


def test_a_key_file_that_is_none_is_not_taken_for_a_process_without_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    for text in (None, "hush", "{}"):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigurationInvalid, match="GOOGLE_APPLICATION_CREDENTIALS") as found:
            ambient_credentials("gcs")
        assert "hush" not in str(found.value)


def test_no_token_goes_to_an_endpoint_that_is_not_googles(
    service_account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.json").write_text(service_account)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    for endpoint in (
        "http://127.0.0.1:4443",
        "https://googleapis.com.example",
        "http://x.googleapis.com",
    ):
        assert ambient_credentials("gcs", endpoint_url=endpoint) is None
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    assert ambient_credentials("gcs") is None
    assert is_google("https://storage-x.p.googleapis.com")


def test_acting_as_another_service_account(
    service_account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`impersonate` is a chain: the last is used, the others delegate."""
    sent: list[tuple[str, Any]] = []
    expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    class Answer:
        status = 200

        def __init__(self, body: Any) -> None:
            self.headers: dict[str, str] = {}
            self.data = json.dumps(body).encode()

    def transport(url: str, method: str = "GET", body: Any = None, **_: Any) -> Answer:
        sent.append((url, body))
        if "generateAccessToken" in url:
            return Answer({"accessToken": "theirs", "expireTime": expiry})
        return Answer({"access_token": "mine", "expires_in": 3600})

    monkeypatch.setattr(gcs_credentials, "Request", lambda: transport)
    values = {
        "service_account_json": service_account,
        "impersonate": "one@p, two@p",
        "scopes": "a,b",
    }
    found = sendable_credentials("gcs", values)
    assert found is not None
    assert found["access_token"] == "theirs"
    url, body = sent[-1]
    assert url.endswith("/serviceAccounts/two@p:generateAccessToken")
    asked = json.loads(body)
    assert [name.rpartition("/")[2] for name in asked["delegates"]] == ["one@p"]
    assert asked["scope"] == ["a", "b"]


def test_a_token_is_sent_as_it_is() -> None:
    values = {"access_token": "t", "expires_at": "5"}
    assert dict(sendable_credentials("gcs", values) or {}) == values


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"service_account_json": "{"}, "is not the JSON key of a service account"),
        ({"service_account_json": '{"private_key": "hush"}'}, "is not the JSON key"),
        ({"service_account_json": '["hush"]'}, "is not the JSON key"),
        ({"service_account_json": "[" * 100_000}, "is not the JSON key"),
        ({"service_account_file": "/no/such/file"}, "cannot be read: No such file"),
    ],
)
def test_keys_that_cannot_be_used(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=said) as caught:
        sendable_credentials("gcs", values)
    assert "hush" not in str(caught.value)


def test_a_profile_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="Google Cloud has no profiles"):
        ambient_credentials("gcs", "prod")


def test_errors_of_the_token_service(scripted: ScriptedServer, service_account: str) -> None:
    refused = json.dumps({"error": "invalid_grant", "error_description": "disabled"}).encode()
    scripted.replies.append(Reply(400, refused, {"Content-Type": "application/json"}))
    with pytest.raises(Unauthenticated, match="invalid_grant"):
        sendable_credentials("gcs", {"service_account_json": service_account})
    gone = json.dumps({**json.loads(service_account), "token_uri": "http://127.0.0.1:9/token"})
    with pytest.raises(StoreUnavailable, match="token service does not answer"):
        sendable_credentials("gcs", {"service_account_json": gone})


def test_a_machine_without_identity_says_what_to_do() -> None:
    with pytest.raises(Unauthenticated, match="gcloud auth application-default login"):
        GcsStore(StoreSpec("gcs", "b")).head("k")


def test_a_request_with_an_expired_token_waits_for_the_next(scripted: ScriptedServer) -> None:
    spec = StoreSpec("gcs", "bkt", scripted.url)
    old, new = (Credentials({"access_token": one, "expires_at": "1"}) for one in ("old", "new"))
    store = open_store(spec, old)
    store.wait_for_credentials()
    time = "2026-11-23T10:00:00Z"
    resource = {"kind": "storage#object", "name": "k", "size": "1", "generation": "7"}
    resource |= {"updated": time, "timeCreated": time}
    scripted.replies += [Reply(401), Reply(200, json.dumps(resource).encode())]
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(store.head, "k")
        while not scripted.requests:
            assert store.needs_credentials
        store.renew_credentials(new)
        assert found.result(30).etag == "7"
    sent = [request.headers["authorization"] for request in scripted.requests]
    assert sent == ["Bearer old", "Bearer new"]
    store.close()
