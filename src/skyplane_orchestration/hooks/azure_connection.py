"""Connections of type `wasb`, with the fields of the microsoft.azure provider (15.2.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from skyplane_gateway.stores import (
    Credentials,
    ambient_credentials,
    connection_string_fields,
    sendable_credentials,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import (
    ConnectionLike,
    extra_fields,
    refuse_fields,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import API_URLS, SCOPES_OPTION

#: Older releases of Airflow's form put this before the names of the fields.
_PREFIX: Final = "extra__wasb__"
_TYPES: Final = dict.fromkeys(
    (
        *("connection_string", "tenant_id", "shared_access_key", "sas_token", "account_key"),
        *("managed_identity_client_id", "workload_identity_tenant_id"),
    ),
    str,
)
_IDENTITY: Final = ("managed_identity_client_id", "workload_identity_tenant_id")
_UNREAD: Final = {
    "client_secret_auth_config": "only the public cloud's authority is asked for tokens; set"
    " AZURE_AUTHORITY_HOST for the workers",
    "proxies": "set HTTPS_PROXY where gateways run",
}
_AZURE_SUFFIX: Final = ".blob.core.windows.net"


def azure_credentials(
    connection: ConnectionLike, connection_id: str, location: Location
) -> Credentials | None:
    """The first in the provider's order.

    A connection string; a service principal (`tenant_id` with login and password);
    `shared_access_key`; `sas_token`; the password as account key; `account_key`; the identity
    of `managed_identity_client_id` with `workload_identity_tenant_id`; the worker's own.
    """
    extra = _checked_extra(connection, connection_id)
    scopes = location.options.get(SCOPES_OPTION, "")
    values = _values(connection, extra)
    if not values and not scopes:
        return ambient_credentials("azure")
    return sendable_credentials("azure", {**values, "scopes": scopes} if scopes else values)


def azure_place(connection: ConnectionLike, connection_id: str, location: Location) -> Location:
    """The location with the connection's endpoint, where that is not the account's own.

    Raises ConfigurationInvalid: the connection is of another account.
    """
    extra = _checked_extra(connection, connection_id)
    account = location.bucket.partition("/")[0]
    url = _endpoint(connection, extra)
    owner = _account(connection, extra, url)
    if location.url != API_URLS["azure"] and owner not in ("", account):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} is of the storage account {owner!r}, and the URL names "
            f"{account!r}; give the connection of that account"
        )
    if location.endpoint_url or not url or urlsplit(url).hostname == f"{account}{_AZURE_SUFFIX}":
        return location
    return replace(location, endpoint_url=url)


def _checked_extra(connection: ConnectionLike, connection_id: str) -> dict[str, Any]:
    extra = extra_fields(connection, connection_id, _TYPES, _PREFIX)
    refuse_fields(connection_id, extra, _UNREAD)
    given = [name for name in _IDENTITY if extra.get(name)]
    if len(given) == 1:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has {given[0]} alone; give {' and '.join(_IDENTITY)}"
        )
    return extra


def _values(connection: ConnectionLike, extra: dict[str, Any]) -> dict[str, str]:
    """The names of `sendable_credentials`; empty for the worker's own identity."""
    if text := extra.get("connection_string"):
        return {"connection_string": text}
    if tenant := extra.get("tenant_id"):
        return {
            "tenant_id": tenant,
            "client_id": connection.login or "",
            "client_secret": connection.password or "",
        }
    if key := extra.get("shared_access_key"):
        return {"account_key": key}
    if token := extra.get("sas_token"):
        # It may be a whole URL with the token after its question mark.
        return {"sas_token": token.rpartition("?")[2]}
    if key := connection.password or extra.get("account_key"):
        return {"account_key": key}
    return {name: extra[name] for name in _IDENTITY if name in extra}


def _endpoint(connection: ConnectionLike, extra: dict[str, Any]) -> str:
    """The URL of the account that the connection names; empty for none."""
    if text := extra.get("connection_string"):
        return connection_string_fields(text).get("blobendpoint", "").rstrip("/")
    token = extra.get("sas_token", "")
    if token.startswith("https"):
        parts = urlsplit(token)
        return f"{parts.scheme}://{parts.netloc}"
    host = (connection.host or "").rstrip("/").replace(".dfs.core.", ".blob.core.")
    if not host or "://" in host:
        return host
    # As in the provider: a name without dots is an account.
    return f"https://{host}" if "." in host else f"https://{host}{_AZURE_SUFFIX}"


def _account(connection: ConnectionLike, extra: dict[str, Any], url: str) -> str:
    """The account that the connection names; empty where it does not say."""
    if text := extra.get("connection_string"):
        return connection_string_fields(text).get("accountname", "")
    hostname = urlsplit(url).hostname or ""
    if hostname.endswith(_AZURE_SUFFIX):
        return hostname.removesuffix(_AZURE_SUFFIX)
    # The login of a service principal is its client id.
    return "" if url or extra.get("tenant_id") else connection.login or ""
