"""Store credentials from an Airflow connection (`airflow:CONN_ID`).

No provider package of a cloud is needed.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from skyplane_gateway.stores import Credentials, ambient_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

#: Kind of store -> connection type with its credentials.
_CONNECTION_TYPES: Final = {"s3": "aws"}

#: Extra fields of an `aws` connection that ask for a call to AWS STS before use.
_ROLE_FIELDS: Final = ("role_arn", "assume_role_method")


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
    """The credentials of an `aws` connection for a location, as in the amazon provider.

    Login and password, or their names in the extra, or `profile_name`; else the worker's own.
    Raises ConfigurationInvalid for a wrong type, half an access key, or a role.
    """
    wanted = _CONNECTION_TYPES.get(location.kind)
    if wanted is None:
        raise ConfigurationInvalid(
            f"{location.url!r} takes no credentials from a connection; omit the connection "
            f"id {connection_id!r}"
        )
    if connection.conn_type != wanted:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; {location.url!r} "
            f"needs one of type {wanted!r}"
        )
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
        return ambient_credentials(location.kind, extra.get("profile_name") or None)
    values = {"access_key_id": str(key), "secret_access_key": str(secret)}
    if token := extra.get("aws_session_token"):
        values["session_token"] = str(token)
    return Credentials(values)
