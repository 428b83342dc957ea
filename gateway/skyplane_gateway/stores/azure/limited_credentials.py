"""Shared access signatures that reach the places of a job only, for gateways.

A key of the account signs them; so does a delegation key, which the service gives an identity.
They follow "Create a service SAS" and "Create a user delegation SAS" (learn.microsoft.com,
2026-11).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, generate_blob_sas, generate_container_sas

from skyplane_gateway.common.errors import CredentialsTooWide
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.azure.connection_strings import url_of_account
from skyplane_gateway.stores.azure.error_mapping import mapped
from skyplane_gateway.stores.reach import Reach

_DURATION_S: Final = 3600
#: Clocks of the service and of this machine may differ by as much.
_CLOCK_S: Final = 300
_READ: Final = "rl"
_WRITE: Final = "rwdl"
_TAGS: Final = "t"


@dataclass(frozen=True, slots=True)
class _Token:
    """See `TokenCredential`; a token that was given."""

    token: AccessToken

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return self.token


def limited_credentials(found: Credentials, reaches: Sequence[Reach]) -> Credentials:
    """A signature for the container, or for sources the directory of an account with directories.

    A signature that was given stays as it is. At most 2 calls.

    Raises:
        CredentialsTooWide: the service gives the identity no delegation key.
        StoreError: it does not answer.
    """
    if found.get("sas_token"):
        return found
    (reach,) = reaches
    account, _, container = reach.store.bucket.partition("/")
    url = url_of_account(account, reach.store.endpoint_url)
    now_s = time.time()
    end_s = int(now_s) + _DURATION_S
    expiry = datetime.fromtimestamp(end_s, UTC)
    credential: Any = {"account_name": account, "account_key": found.get("account_key")}
    if token := found.get("bearer_token"):
        credential = _Token(AccessToken(token, int(found.get("expires_at", end_s))))
    with (
        mapped(f"asking for a signature for {reach.urls}"),
        closing(BlobServiceClient(url, credential=credential)) as client,
    ):
        signing: dict[str, Any] = {"account_key": found.get("account_key")}
        if not signing["account_key"]:
            start = datetime.fromtimestamp(now_s - _CLOCK_S, UTC)
            signing = {"user_delegation_key": _delegation_key(client, start, expiry, reach)}
        directory = "" if reach.writes else _directory(client, reach)
    permission = _WRITE if reach.writes else _READ
    # Only callers that may read tags are told that there are some. Directories have none.
    if reach.keeps_tags or not (reach.writes or directory):
        permission += _TAGS
    given = {**signing, "permission": permission, "expiry": expiry}
    if directory:
        at: dict[str, Any] = {"is_directory": True, "sdd": directory.count("/") + 1}
        text = generate_blob_sas(account, container, directory, **given, **at)
    else:
        text = generate_container_sas(account, container, **given)
    return Credentials({"sas_token": text, "expires_at": str(end_s)})


def _delegation_key(
    client: BlobServiceClient, start: datetime, expiry: datetime, reach: Reach
) -> Any:
    """Raises CredentialsTooWide, AzureError."""
    try:
        return client.get_user_delegation_key(start, expiry)
    except HttpResponseError as error:
        if error.status_code != 403:
            raise
        account = reach.store.bucket.partition("/")[0]
        why = "the service gives this identity no delegation key, by which it signs"
        needed = f"assign it the role Storage Blob Delegator on the storage account {account}"
        raise CredentialsTooWide.of(reach.urls, why, needed) from error


def _directory(client: BlobServiceClient, reach: Reach) -> str:
    """The directory of the places, without slashes at its ends; empty for the container.

    Only accounts with a hierarchical namespace have signatures for one.
    """
    parents = {text[: text.rfind("/")] for text in (*reach.folders, *reach.keys) if "/" in text}
    if len(parents) != 1 or not all("/" in text for text in (*reach.folders, *reach.keys)):
        return ""
    try:
        # The types of the SDK leave this value out.
        told: Any = client.get_account_information()
    except HttpResponseError:
        return ""
    return parents.pop().strip("/") if told.get("is_hns_enabled") else ""
