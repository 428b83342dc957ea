"""`airflow:CONN_ID`: store credentials from an Airflow connection.

Read without the provider of the cloud, so that a transfer needs none of them installed.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from skyplane_gateway.stores import Credentials, ambient_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

#: Kind of store -> the connection type that holds its credentials.
_CONNECTION_TYPES: Final = {"s3": "aws"}

#: Extra fields of an `aws` connection that ask for a call to AWS STS before use.
_ROLE_FIELDS: Final = ("role_arn", "assume_role_method")


class StoreConnection(Protocol):
    """What is read of an Airflow connection."""

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
    """The credentials that a connection holds for a location.

    An `aws` connection gives login and password, or `aws_access_key_id` and
    `aws_secret_access_key` of its extra, with `aws_session_token`; or `profile_name`; or,
    when it holds none of them, what the worker itself may use, as the amazon provider does.

    Raises:
        ConfigurationInvalid: it is of another type, holds half a key, or names a role.
    """
    wanted = _CONNECTION_TYPES.get(location.kind)
    if wanted is None:
        raise ConfigurationInvalid(
            f"{location.url!r} takes no credentials from a connection; leave the connection "
            f"id {connection_id!r} out"
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
            f"connection {connection_id!r} holds only half of an access key; give both the "
            "login (access key id) and the password (secret access key)"
        )
    if not key:
        return ambient_credentials(location.kind, extra.get("profile_name") or None)
    values = {"access_key_id": str(key), "secret_access_key": str(secret)}
    if token := extra.get("aws_session_token"):
        values["session_token"] = str(token)
    return Credentials(values)
