"""Credentials that a refresh returns expired are one error, for every verb."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from botocore.credentials import RefreshableCredentials
from botocore.session import Session
from tests.gateway.stores.scripted import ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import CredentialsExpired
from skyplane_gateway.common.objects import PartInfo, StoreSpec
from skyplane_gateway.stores import ObjectStore, open_store
from skyplane_gateway.stores.s3.credentials import (
    ambient_credentials,
    sendable_credentials,
    session_credentials,
)

CRC = crc32c(b"x")
ROLE = {
    "role_arn": "arn:aws:iam::123456789012:role/reader",
    "role_arguments": '{"RoleSessionName": "session"}',
}
VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "check": lambda store: store.check(),
    "list": lambda store: list(store.list("")),
    "head": lambda store: store.head("k"),
    "read": lambda store: store.read("k", offset=0, length=1, if_match=None),
    "put": lambda store: store.put("k", b"x"),
    "create": lambda store: store.create_upload("k"),
    "put_part": lambda store: store.put_part("k", "u", 1, b"x", offset=0, crc32c=CRC),
    "complete": lambda store: store.complete_upload(
        "k", "u", [PartInfo(1, "e", 1, CRC)], size_bytes=1
    ),
    "abort": lambda store: store.abort_upload("k", "u"),
    "uploads": lambda store: list(store.list_uploads("")),
    "parts": lambda store: store.list_parts("k", "u"),
    "delete": lambda store: store.delete("k"),
}


def stale() -> RefreshableCredentials:
    past = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat()
    values = {"access_key": "a", "secret_key": "s", "token": "t", "expiry_time": past}
    return RefreshableCredentials.create_from_metadata(values, lambda: values, "test")


@pytest.fixture(autouse=True)
def _stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "get_credentials", lambda _: stale())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb(scripted: ScriptedServer, verb: str) -> None:
    store = open_store(StoreSpec("s3", "bkt", scripted.url, "us-east-1"))
    with pytest.raises(CredentialsExpired, match="expired already: renew them") as caught:
        VERBS[verb](store)
    assert not caught.value.is_permanent
    assert scripted.requests == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda _: ambient_credentials(),
        lambda _: session_credentials(Session),
        lambda url: sendable_credentials({**ROLE, "sts_endpoint_url": url}),
    ],
    ids=["ambient", "session", "role"],
)
def test_credentials_for_gateways(scripted: ScriptedServer, ask: Callable[[str], object]) -> None:
    with pytest.raises(CredentialsExpired, match="expired already"):
        ask(scripted.url)
