"""What Azurite refuses: each is one error of this project, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from skyplane_gateway.common.errors import (
    CredentialsExpired,
    NotFound,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries

VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "check": lambda store: store.check(),
    "list": lambda store: list(store.list("")),
    "head": lambda store: store.head("k"),
    "read": lambda store: store.read("k", offset=0, length=1, if_match=None),
    "put": lambda store: store.put("k", b"y"),
    "begin": lambda store: store.create_upload("k"),
}


def signature(azure: Any, *, hours: float = 1, begins_in_h: float = 0) -> Credentials:
    account, name = azure.spec.bucket.split("/")
    now = datetime.now(UTC)
    token = generate_container_sas(
        account,
        name,
        account_key=azure.credentials["account_key"],
        permission=ContainerSasPermissions(read=True, list=True, write=True, delete=True),
        start=now + timedelta(hours=begins_in_h) if begins_in_h else None,
        expiry=now + timedelta(hours=hours),
    )
    return Credentials({"sas_token": token})


def refused(azure: Any, verb: str, bucket: str, credentials: Credentials) -> StoreError:
    azure.shared.put("k", b"x")
    store = open_without_retries(replace(azure.spec, bucket=bucket), credentials)
    with pytest.raises(StoreError) as caught:
        VERBS[verb](store)
    store.close()
    assert azure.read("k") == b"x"
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("verb", VERBS)
def test_a_signature_that_has_expired(azure: Any, verb: str) -> None:
    error = refused(azure, verb, azure.spec.bucket, signature(azure, hours=-1))
    assert type(error) is CredentialsExpired
    assert not error.is_permanent
    assert "renew them" in error.message


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", ["key", "signature", "not yet"])
def test_credentials_that_are_not_accepted(azure: Any, verb: str, wrong: str) -> None:
    """Azurite says AuthorizationFailure, for which the service has other reasons too."""
    credentials = {
        "key": Credentials({"account_key": "b3RoZXI="}),
        "signature": Credentials({"sas_token": signature(azure)["sas_token"][:-9] + "AAAAAA%3D"}),
        "not yet": signature(azure, begins_in_h=0.5),
    }[wrong]
    error = refused(azure, verb, azure.spec.bucket, credentials)
    assert type(error) is PermissionDenied
    assert error.is_permanent
    assert "the key, the signature or the role" in error.message


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", ["account", "container"])
def test_a_place_that_does_not_exist(azure: Any, verb: str, wrong: str) -> None:
    account, name = azure.spec.bucket.split("/")
    bucket = f"another/{name}" if wrong == "account" else f"{account}/another"
    error = refused(azure, verb, bucket, azure.credentials)
    assert type(error) is NotFound
    assert error.is_permanent
    assert f"az://{bucket}/" in error.message
    assert "check the name" in error.message


def test_an_account_without_an_address(azure: Any) -> None:
    """In Azure each account has a name of its own in the DNS."""
    spec = replace(azure.spec, endpoint_url="http://another.blob.invalid")
    store = open_without_retries(spec, azure.credentials)
    with pytest.raises(StoreUnavailable, match="check the account's name") as caught:
        store.check()
    store.close()
    assert not caught.value.is_permanent


def test_a_blob_that_is_deleted_meanwhile(azure: Any) -> None:
    """Soft delete makes no difference: the service says BlobNotFound."""
    azure.shared.put("k", b"x")
    azure.shared.delete("k")
    with pytest.raises(NotFound, match="restore it") as caught:
        azure.shared.read("k", offset=0, length=1, if_match=None)
    assert caught.value.is_permanent
