"""Store credentials and places from an Airflow connection (`airflow:CONN_ID`).

The fields mean what they mean in the provider packages of the clouds, none of which is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from skyplane_gateway.stores import Credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.aws_connection import aws_credentials, aws_place
from skyplane_orchestration.hooks.azure_connection import azure_credentials, azure_place
from skyplane_orchestration.hooks.connection_fields import ConnectionLike
from skyplane_orchestration.hooks.google_connection import google_credentials, google_place
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import purpose_of

log = logging.getLogger(__name__)

#: Types of connections that were stored where the provider of the cloud is not installed.
_UNTYPED: Final = ("generic", "", None)


class _Reader(NamedTuple):
    """The type of the connections of one cloud, and what reads them."""

    conn_type: str
    credentials: Callable[[ConnectionLike, str, Location], Credentials | None]
    place: Callable[[ConnectionLike, str, Location], Location]


_READERS: Final = {
    "azure": _Reader("wasb", azure_credentials, azure_place),
    "gcs": _Reader("google_cloud_platform", google_credentials, google_place),
    "s3": _Reader("aws", aws_credentials, aws_place),
}


def credentials_from_connection(
    connection: ConnectionLike, connection_id: str, location: Location
) -> Credentials | None:
    """The credentials of a connection for a location, as in the provider packages of the clouds.

    Raises ConfigurationInvalid for a wrong type or a field that cannot be used, and StoreError
    where a service that gives credentials refuses.
    """
    return _reader(connection, connection_id, location).credentials(
        connection, connection_id, location
    )


def location_from_connection(
    connection: ConnectionLike, connection_id: str, location: Location
) -> Location:
    """The location with the connection's endpoint and options, where it has none of its own.

    Raises ConfigurationInvalid as `credentials_from_connection`; makes no request.
    """
    return _reader(connection, connection_id, location).place(connection, connection_id, location)


def _reader(connection: ConnectionLike, connection_id: str, location: Location) -> _Reader:
    found = _READERS.get(location.kind)
    if found is None:
        raise ConfigurationInvalid(
            f"{purpose_of(location)} takes no credentials from a connection; omit the connection "
            f"id {connection_id!r}"
        )
    if connection.conn_type in _UNTYPED:
        log.warning(
            "connection %r is of type %r; it is read as one of type %r, which %s needs",
            connection_id,
            connection.conn_type,
            found.conn_type,
            purpose_of(location),
        )
    elif connection.conn_type != found.conn_type:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; "
            f"{purpose_of(location)} needs one of type {found.conn_type!r}"
        )
    return found
