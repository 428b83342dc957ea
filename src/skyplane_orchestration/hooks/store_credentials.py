"""Store credentials from an Airflow connection (`airflow:CONN_ID`).

No provider package of a cloud is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from skyplane_gateway.stores import Credentials, ambient_credentials, sendable_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.credentials import SCOPES_OPTION, purpose_of

#: Extra fields of an `aws` connection that ask for a call to AWS STS before use.
_ROLE_FIELDS: Final = ("role_arn", "assume_role_method")

#: Older releases of Airflow's form for Google connections put this before the names of the fields.
_GOOGLE_PREFIX: Final = "extra__google_cloud_platform__"
#: Fields of Google connections that are not read -> what to do instead.
_GOOGLE_UNREAD: Final = {
    "key_secret_name": "give keyfile_dict or key_path",
    "credential_config_file": "set GOOGLE_APPLICATION_CREDENTIALS for the workers",
    "is_anonymous": "give the location the option anonymous=true, and no connection",
}

#: Older releases of Airflow's form for Azure connections put this before the names of the fields.
_AZURE_PREFIX: Final = "extra__wasb__"
#: Fields of Azure connections that are not read -> what to do instead.
_AZURE_UNREAD: Final = {
    "managed_identity_client_id": "set AZURE_CLIENT_ID for the workers",
    "workload_identity_tenant_id": "set AZURE_TENANT_ID for the workers",
}


class StoreConnection(Protocol):
    """The fields of an Airflow connection that are read."""

    @property
    def conn_type(self) -> str | None: ...

    @property
    def login(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def credentials_from_connection(
    connection: StoreConnection, connection_id: str, location: Location
) -> Credentials | None:
    """The credentials of a connection for a location, as in the provider packages of the clouds.

    Raises ConfigurationInvalid for a wrong type or a field that cannot be used.
    """
    found = _READERS.get(location.kind)
    if found is None:
        raise ConfigurationInvalid(
            f"{purpose_of(location)} takes no credentials from a connection; omit the connection "
            f"id {connection_id!r}"
        )
    wanted, read = found
    if connection.conn_type != wanted:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; "
            f"{purpose_of(location)} needs one of type {wanted!r}"
        )
    return read(connection, connection_id, location)


def _from_aws(connection: StoreConnection, connection_id: str, _: Location) -> Credentials | None:
    """Login and password, or their names in the extra, or `profile_name`; else the worker's own.

    Half an access key and a role are refused.
    """
    extra = connection.extra_dejson
    if any(extra.get(name) for name in _ROLE_FIELDS):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} assumes a role, which is not supported; give keys "
            "with a session token, or a profile_name whose profile assumes the role"
        )
    key = connection.login or extra.get("aws_access_key_id")
    secret = connection.password or extra.get("aws_secret_access_key")
    if bool(key) != bool(secret):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has only half of an access key; give both the "
            "login (access key id) and the password (secret access key)"
        )
    if not key:
        return ambient_credentials("s3", extra.get("profile_name") or None)
    values = {"access_key_id": str(key), "secret_access_key": str(secret)}
    if token := extra.get("aws_session_token"):
        values["session_token"] = str(token)
    return Credentials(values)


def _from_google(
    connection: StoreConnection, connection_id: str, location: Location
) -> Credentials | None:
    """A service account's key (`keyfile_dict`, `key_path`), else the worker's own identity.

    `impersonation_chain` and `scope` apply to either; scopes that the location names count first.
    Other fields with credentials are refused.
    """
    extra = {
        name.removeprefix(_GOOGLE_PREFIX): value
        for name, value in connection.extra_dejson.items()
        if value
    }
    for name, advice in _GOOGLE_UNREAD.items():
        if name in extra:
            raise ConfigurationInvalid(
                f"connection {connection_id!r} has {name}, which is not supported; {advice}"
            )
    key, chain = extra.get("keyfile_dict"), extra.get("impersonation_chain", "")
    values = {
        "service_account_file": str(extra.get("key_path", "")),
        "service_account_json": key if isinstance(key, str) else json.dumps(key) if key else "",
        "impersonate": chain if isinstance(chain, str) else ",".join(map(str, chain)),
        "scopes": location.options.get(SCOPES_OPTION) or str(extra.get("scope", "")),
    }
    if values["service_account_file"] and values["service_account_json"]:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has both keyfile_dict and key_path; give one"
        )
    return sendable_credentials("gcs", values)


def _from_azure(
    connection: StoreConnection, connection_id: str, location: Location
) -> Credentials | None:
    """A connection string, a SAS token, a service principal or an account key, in this order.

    A principal is `tenant_id` with login (client id) and password (secret). Without any of them
    the worker's own identity counts. Fields for another identity are refused.
    """
    extra = {
        name.removeprefix(_AZURE_PREFIX): str(value)
        for name, value in connection.extra_dejson.items()
        if value
    }
    for name, advice in _AZURE_UNREAD.items():
        if name in extra:
            raise ConfigurationInvalid(
                f"connection {connection_id!r} has {name}, which is not supported; {advice}"
            )
    values = {"connection_string": extra.get("connection_string", "")}
    # It may be a whole URL with the token after its question mark.
    values["sas_token"] = extra.get("sas_token", "").rpartition("?")[2]
    if tenant := extra.get("tenant_id"):
        values |= {
            "tenant_id": tenant,
            "client_id": connection.login or "",
            "client_secret": connection.password or "",
        }
    else:
        values["account_key"] = extra.get("shared_access_key") or connection.password or ""
    scopes = location.options.get(SCOPES_OPTION, "")
    if not any(values.values()) and not scopes:
        return ambient_credentials("azure")
    return sendable_credentials("azure", {**values, "scopes": scopes} if scopes else values)


_Reader = Callable[[StoreConnection, str, Location], Credentials | None]

_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    # Kind of store -> connection type with its credentials, and the function that reads one.
    "azure": ("wasb", _from_azure),
    "gcs": ("google_cloud_platform", _from_google),
    "s3": ("aws", _from_aws),
}
