"""Hosts from Airflow connections of type `ssh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import ConnectionLike

_CONNECTION_ID: Final = "conn_id"
_TYPES: Final = ("ssh", "sftp")
#: What a host of the skyplane connection cannot say itself.
HOST_SECRETS: Final = frozenset({"private_key", "passphrase"})
#: Fields of a host that come from its connection.
_FROM_CONNECTION: Final = (
    *("address", "port", "user", "key_file", "host_key"),
    *sorted(HOST_SECRETS),
)


#: Connection id -> connection. Raises ConfigurationInvalid if there is none.
GetConnection = Callable[[str], ConnectionLike]


def with_ssh_connections(hosts: Mapping[str, Any], get_connection: GetConnection) -> dict[str, Any]:
    """A document of hosts in which no host is a connection; see docs/how-to/ssh-hosts.md.

    Raises ConfigurationInvalid: a connection is missing or cannot be used.
    """
    return {
        tag: [_host(entry, get_connection) for entry in group] if isinstance(group, list) else group
        for tag, group in hosts.items()
    }


def _host(entry: object, get_connection: GetConnection) -> object:
    """The fields of `SshHost`; of a connection by the names of the ssh provider.

    Its `no_host_key_check` is not obeyed: a host without a known key is refused. A password opens
    the private key, as in the ssh provider, and is no login of its own.
    """
    if not isinstance(entry, dict) or _CONNECTION_ID not in entry:
        return entry
    own = {name: value for name, value in entry.items() if name != _CONNECTION_ID}
    connection_id = str(entry[_CONNECTION_ID])
    twice = sorted(set(own) & set(_FROM_CONNECTION))
    if twice:
        raise ConfigurationInvalid(
            f"a host of the skyplane connection has conn_id {connection_id!r} and"
            f" {', '.join(twice)}; the connection says that"
        )
    connection = get_connection(connection_id)
    if connection.conn_type not in _TYPES:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has the type {connection.conn_type!r}; a host needs one"
            f" of the type {' or '.join(_TYPES)}"
        )
    if not connection.host:
        raise ConfigurationInvalid(f"connection {connection_id!r} has no host")
    extra = connection.extra_dejson
    key_file, private_key = extra.get("key_file", ""), extra.get("private_key", "")
    if connection.password and not (key_file or private_key):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has a password; hosts are logged in to by keys only, so"
            " give it a key_file or a private_key"
        )
    host_key = str(extra.get("host_key") or "")
    if host_key and len(host_key.split()) < 2:
        host_key = f"ssh-rsa {host_key}"  # As the ssh provider takes a key without a type.
    found = {
        "address": connection.host,
        "port": connection.port,
        "user": connection.login,
        "key_file": key_file,
        "private_key": private_key,
        "passphrase": extra.get("private_key_passphrase") or connection.password,
        "host_key": host_key,
    }
    return {**{name: value for name, value in found.items() if value}, **own}
