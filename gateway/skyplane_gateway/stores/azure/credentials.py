"""Credentials of Azure Blob Storage, and the signatures of requests.

The names of `Credentials`: `account_key`; `sas_token`; or `bearer_token` with `expires_at` (unix
seconds). Gateways get one of them, or use the identity of their machine.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob import BlobServiceClient

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.azure.connection_strings import connection_string_fields
from skyplane_gateway.stores.azure.error_mapping import mapped

log = logging.getLogger(__name__)

_SCOPE: Final = "https://storage.azure.com/.default"
_AZURE_HOSTS: Final = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".storage.azure.net",
)
#: A token is renewed so long before its end.
_EARLY_S: Final = 300.0
#: Azure Identity's names of a service principal -> ours.
_PRINCIPAL: Final = ("tenant_id", "client_id", "client_secret")


class Signer(Protocol):
    """Makes a request one that the service accepts."""

    @property
    def expires_unix_s(self) -> float | None:
        """When the credentials expire; None where that is not known."""

    @property
    def is_ready(self) -> bool:
        """`sign` sends no request."""

    def sign(self, method: str, url: str, headers: dict[str, str]) -> str:
        """Add to the headers; return the URL, perhaps with a signature. Raises AzureError."""


@dataclass(frozen=True, slots=True)
class FixedSigner:
    """See `Signer`. A signature or a token that was given; neither for anonymous requests."""

    query: str = ""
    authorization: str = ""
    expires_unix_s: float | None = None
    is_ready: bool = True

    def sign(self, method: str, url: str, headers: dict[str, str]) -> str:
        if self.authorization:
            headers["authorization"] = self.authorization
        return f"{url}{'&' if '?' in url else '?'}{self.query}" if self.query else url


class SharedKeySigner:
    """See `Signer`. The SDK makes the signature."""

    expires_unix_s: float | None = None
    is_ready = True

    def __init__(self, url: str, account: str, key: str) -> None:
        try:
            b64decode(key, validate=True)
        except (Base64Error, ValueError) as error:
            raise ConfigurationInvalid(
                f"the key of the storage account {account!r} is not base64; copy it whole"
            ) from error
        named = {"account_name": account, "account_key": key}
        # Any: the SDK has no name for the policy that it makes of a key.
        self._policy: Any = BlobServiceClient(url, credential=named).credential

    def sign(self, method: str, url: str, headers: dict[str, str]) -> str:
        request = HttpRequest(method, url, headers=headers)
        self._policy.on_request(PipelineRequest(request, PipelineContext(None)))
        headers["authorization"] = request.headers["Authorization"]
        return url


class IdentitySigner:
    """See `Signer`. The identity of this machine or process, by azure-identity's chain."""

    def __init__(self) -> None:
        self._chain = _default_chain()
        self._lock = threading.Lock()
        self._token = ""
        self.expires_unix_s: float | None = None

    @property
    def is_ready(self) -> bool:
        return time.time() < (self.expires_unix_s or -math.inf) - _EARLY_S

    def sign(self, method: str, url: str, headers: dict[str, str]) -> str:
        with self._lock:
            if not self.is_ready:
                found = self._chain.get_token(_SCOPE)
                self._token, self.expires_unix_s = found.token, float(found.expires_on)
        headers["authorization"] = f"Bearer {self._token}"
        return url


def signer_of(
    url: str, account: str, credentials: Credentials | None, *, is_anonymous: bool
) -> Signer:
    """Raises ConfigurationInvalid for credentials that are not Azure's."""
    if is_anonymous:
        return FixedSigner()
    if credentials is None:
        return IdentitySigner()
    if key := credentials.get("account_key"):
        return SharedKeySigner(url, account, key)
    if token := credentials.get("sas_token"):
        return FixedSigner(query=token.strip().lstrip("?"), expires_unix_s=sas_expiry(token))
    if token := credentials.get("bearer_token"):
        expiry = credentials.get("expires_at")
        return FixedSigner("", f"Bearer {token}", float(expiry) if expiry else None)
    raise ConfigurationInvalid(
        f"credentials of the storage account {account!r} need account_key, sas_token or "
        "bearer_token"
    )


def ambient_credentials(profile: str | None, bucket: str, endpoint_url: str) -> Credentials | None:
    """The credentials of this process for a container, to be sent to gateways; None for none.

    Those of the variables that the Azure CLI reads, if they are for this account; else a token
    of azure-identity's default chain. A token goes to endpoints of Azure only.

    Raises:
        ConfigurationInvalid: a profile is given; Azure has none.
    """
    if profile is not None:
        raise ConfigurationInvalid(
            f"credentials profile:{profile}: Azure has no profiles; use env:PREFIX, a connection, "
            "or `az login`"
        )
    account = bucket.partition("/")[0]
    if found := _from_environment(account):
        return found
    if endpoint_url and not (urlsplit(endpoint_url).hostname or "").endswith(_AZURE_HOSTS):
        return None
    try:
        return _token_credentials(_chain_token())
    except ClientAuthenticationError as error:
        log.info("this process has no identity of Azure: %s", error.message)
        return None


def _from_environment(account: str) -> Credentials | None:
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if text and connection_string_fields(text).get("accountname", account) == account:
        return _of_connection_string(text)
    if os.environ.get("AZURE_STORAGE_ACCOUNT", account) != account:
        return None
    if key := os.environ.get("AZURE_STORAGE_KEY"):
        return Credentials({"account_key": key})
    if token := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
        return sendable_credentials({"sas_token": token})
    return None


def sendable_credentials(values: Mapping[str, str]) -> Credentials:
    """The credentials that gateways get for those that a user gave.

    A service principal (`tenant_id`, `client_id`, `client_secret`) becomes a token, and a
    connection string its key or its signature. `managed_identity_client_id` with
    `workload_identity_tenant_id` becomes a token of that identity of this machine. `scopes` is for
    a token of another service than storage, which only a principal can have.

    Raises:
        ConfigurationInvalid: something of them is missing.
        Unauthenticated: the principal is not accepted.
    """
    if scope := values.get("scopes"):
        return _of_principal(values, scope, f"{scope} needs a service principal")
    if text := values.get("connection_string"):
        return _of_connection_string(text)
    if key := values.get("account_key"):
        return Credentials({"account_key": key})
    if token := values.get("sas_token"):
        expiry = sas_expiry(token)
        known = {} if expiry is None else {"expires_at": str(int(expiry))}
        return Credentials({"sas_token": token, **known})
    if identity := values.get("managed_identity_client_id"):
        return _of_machine(identity, values.get("workload_identity_tenant_id", ""))
    return _of_principal(
        values,
        _SCOPE,
        "Azure credentials are an account key, a SAS token, a connection string or a service "
        "principal",
    )


def _of_principal(values: Mapping[str, str], scope: str, wanted: str) -> Credentials:
    missing = [name for name in _PRINCIPAL if not values.get(name)]
    if missing:
        raise ConfigurationInvalid(f"{wanted}, of which {' and '.join(missing)} is missing")
    from azure.identity import ClientSecretCredential

    with mapped("asking Microsoft Entra for a token"):
        principal = ClientSecretCredential(*(values[name] for name in _PRINCIPAL))
        return _token_credentials(principal.get_token(scope))


def _of_machine(identity: str, tenant: str) -> Credentials:
    from azure.identity import DefaultAzureCredential

    with mapped(f"asking Microsoft Entra for a token of the identity {identity}"):
        chain = DefaultAzureCredential(
            managed_identity_client_id=identity,
            workload_identity_tenant_id=tenant,
            additionally_allowed_tenants=[tenant],
        )
        return _token_credentials(chain.get_token(_SCOPE))


def sas_expiry(token: str) -> float | None:
    """Unix seconds of a signature's `se`; None for one whose policy holds the expiry."""
    text = parse_qs(token.strip().lstrip("?")).get("se", [""])[0]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _of_connection_string(text: str) -> Credentials:
    fields = connection_string_fields(text)
    if key := fields.get("accountkey"):
        return Credentials({"account_key": key})
    if token := fields.get("sharedaccesssignature"):
        return sendable_credentials({"sas_token": token})
    raise ConfigurationInvalid(
        "the connection string has neither AccountKey nor SharedAccessSignature; copy it whole"
    )


def _token_credentials(found: AccessToken) -> Credentials:
    return Credentials({"bearer_token": found.token, "expires_at": str(int(found.expires_on))})


def _default_chain() -> TokenCredential:
    # msal takes longer to import than a request, and only identities need it.
    from azure.identity import DefaultAzureCredential

    # The chain warns of each identity that this machine does not have; our message says it once.
    logging.getLogger("azure.identity").setLevel(logging.ERROR)
    logging.getLogger("azure.core").setLevel(logging.WARNING)
    return DefaultAzureCredential()


@lru_cache(maxsize=1)
def _chain_token_of(_minute: int) -> AccessToken:
    return _default_chain().get_token(_SCOPE)


def _chain_token() -> AccessToken:
    """One token for all calls of a minute: the chain may start the Azure CLI for each."""
    return _chain_token_of(int(time.monotonic() // 60))
