"""Signatures that reach the places of a job only; Azurite checks those of an account's key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, UserDelegationKey
from tests.faults import azurite
from tests.gateway.stores.all_verbs import PLAIN, write_all

from skyplane_gateway.common.errors import CredentialsTooWide, StoreError
from skyplane_gateway.common.objects import Credentials, ObjectAttributes
from skyplane_gateway.stores import ObjectStore, Reach, StoreSpec, limited_credentials
from skyplane_gateway.stores.azure import limited_credentials as azure_limits
from skyplane_gateway.stores.registry import open_without_retries

KEY: Final = Credentials({"account_key": "c2VjcmV0LW9mLXRlc3Rz"})
TOKEN: Final = Credentials({"bearer_token": "t", "expires_at": "1"})
SPEC: Final = StoreSpec("azure", "account/places")
OWN: Final = "in/$*?'\"日/"


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreSpec]:
    try:
        with azurite.running(tmp_path_factory.mktemp("azurite")) as server:
            named = {"account_name": server.account, "account_key": server.account_key}
            url = f"{server.url}/{server.account}"
            with closing(BlobServiceClient(url, credential=named)) as client:
                for name in ("places", "others"):
                    client.create_container(name)
            spec = replace(SPEC, endpoint_url=server.url)
            for one in (spec, replace(spec, bucket="account/others")):
                open_without_retries(one, KEY).put(f"{OWN}a", b"body")
            yield spec
    except azurite.Unavailable as error:
        pytest.skip(str(error))


def is_allowed(call: Callable[[], Any]) -> bool:
    """A signature for another container is one that is not valid there."""
    try:
        call()
    except StoreError as error:
        assert error.code in ("permission-denied", "unauthenticated"), error  # noqa: PT017
        return False
    return True


#: What a gateway tries -> in which container, and whether sources and sinks may.
ATTEMPTS: Final[dict[str, tuple[str, Callable[[ObjectStore], Any], bool, bool]]] = {
    "read its own": ("places", lambda store: store.head(f"{OWN}a"), True, True),
    "list its own": ("places", lambda store: list(store.list(OWN)), True, True),
    "write its own": ("places", lambda store: store.put(f"{OWN}b", b""), False, True),
    "upload its own": ("places", lambda store: store.create_upload(f"{OWN}c"), False, True),
    "delete its own": ("places", lambda store: store.delete(f"{OWN}b"), False, True),
    "read another": ("others", lambda store: store.head(f"{OWN}a"), False, False),
    "list another": ("others", lambda store: list(store.list("")), False, False),
    "write another": ("others", lambda store: store.put("b", b""), False, False),
}


@pytest.mark.parametrize("writes", [False, True])
def test_a_signature_reaches_its_container_only(spec: StoreSpec, writes: bool) -> None:
    found = limited_credentials(KEY, [Reach(spec, (OWN,), writes=writes)])
    assert set(found) == {"sas_token", "expires_at"}
    got = {}
    for name, (container, call, *_) in ATTEMPTS.items():
        store = open_without_retries(replace(spec, bucket=f"account/{container}"), found)
        got[name] = is_allowed(partial(call, store))
    assert got == {name: row[2 + writes] for name, row in ATTEMPTS.items()}


@pytest.mark.parametrize("letter", ["", *"rwdlt"])
def test_a_signature_has_the_letters_that_the_store_needs_and_no_others(
    spec: StoreSpec, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of them, something that a sink sends is refused."""
    for name in ("_WRITE", "_TAGS"):
        letters = getattr(azure_limits, name)
        monkeypatch.setattr(azure_limits, name, letters.replace(letter, ""))
    kept = replace(spec, options=(("tags", "keep"),))
    found = limited_credentials(KEY, [Reach(kept, (OWN,), writes=True, keeps_tags=True)])
    attributes = ObjectAttributes(metadata=(("a", "b"),), tags=(("c", "d"),))

    def write() -> None:
        with closing(open_without_retries(kept, found)) as store:
            assert write_all(store, f"{OWN}{letter}/", attributes) == PLAIN

    assert is_allowed(write) is (letter == "")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The service's answers: whether the account has directories, and the delegation key."""
    key: Any = UserDelegationKey()  # type: ignore[no-untyped-call]
    key.signed_oid = key.signed_tid = "00000000-0000-0000-0000-000000000000"
    key.signed_start, key.signed_expiry = "2026-11-28T00:00:00Z", "2026-11-28T01:00:00Z"
    key.signed_service, key.signed_version, key.value = "b", "2023-11-03", "c2VjcmV0"
    answers: dict[str, Any] = {"is_hns_enabled": True, "key": key}

    def delegation_key(client: BlobServiceClient, start: Any, expiry: Any) -> UserDelegationKey:
        assert client.url == "https://account.blob.core.windows.net/"
        if isinstance(answers["key"], Exception):
            raise answers["key"]
        found: UserDelegationKey = answers["key"]
        return found

    monkeypatch.setattr(BlobServiceClient, "get_user_delegation_key", delegation_key)
    monkeypatch.setattr(BlobServiceClient, "get_account_information", lambda _: answers)
    return answers


@pytest.mark.parametrize(
    ("reach", "is_hns", "scope"),
    [
        (Reach(SPEC, ("a/b/",)), True, {"sr": ["d"], "sdd": ["2"], "sp": ["rl"]}),
        (Reach(SPEC, keys=("a/b",)), True, {"sr": ["d"], "sdd": ["1"], "sp": ["rl"]}),
        # Others than these are not told that a blob has tags; blobs in directories have none.
        (Reach(SPEC, ("a/b/",)), False, {"sr": ["c"], "sp": ["rlt"]}),
        (Reach(SPEC, ("",)), True, {"sr": ["c"], "sp": ["rlt"]}),
        (Reach(SPEC, ("a/",), writes=True, keeps_tags=True), True, {"sp": ["rwdlt"], "sr": ["c"]}),
        # Markers of uploads are beside the directory.
        (Reach(SPEC, ("a/b/",), writes=True), True, {"sr": ["c"], "sp": ["rwdl"]}),
    ],
)
@pytest.mark.parametrize("found", [KEY, TOKEN])
def test_what_a_signature_is_for(
    service: dict[str, Any], found: Credentials, reach: Reach, is_hns: bool, scope: Any
) -> None:
    service["is_hns_enabled"] = is_hns
    limited = limited_credentials(found, [reach])
    fields = parse_qs(limited["sas_token"])
    assert {name: fields.get(name) for name in ("sr", "sdd", "sp")} == {"sdd": None, **scope}
    assert ("skoid" in fields) is (found is TOKEN)
    assert 3590 < int(limited["expires_at"]) - time.time() < 3601


def test_an_identity_without_a_delegation_key_is_refused_with_the_role(
    service: dict[str, Any],
) -> None:
    service["key"] = HttpResponseError("no")
    service["key"].status_code = 403
    with pytest.raises(CredentialsTooWide, match="Storage Blob Delegator on the storage account a"):
        limited_credentials(TOKEN, [Reach(SPEC, ("a/",))])


def test_a_signature_that_was_given_stays() -> None:
    given = Credentials({"sas_token": "sp=r"})
    assert limited_credentials(given, [Reach(SPEC, ("a/",))]) is given
