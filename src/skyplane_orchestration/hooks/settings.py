"""Settings from a `skyplane` connection; the defaults are for a single machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_type_hints

from skyplane_gateway.common.schema import parsed
from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import ConnectionLike, typed_field
from skyplane_orchestration.hooks.ssh_connections import (
    HOST_SECRETS,
    GetConnection,
    with_ssh_connections,
)

#: Fields of a host that choose what runs there.
_PROGRAMS: Final = frozenset({"image", "python"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ClientSettings):
    """Settings of the clients of one connection."""

    @classmethod
    def from_connection(cls, connection: ConnectionLike) -> Settings:
        """Settings without a gateway program: editing a connection must not allow running commands.

        Raises ConfigurationInvalid for an unknown field or an invalid value.
        """
        # The form leaves them so.
        extra = {
            name: value
            for name, value in connection.extra_dejson.items()
            if value not in ("", None, {})
        }
        types = get_type_hints(ClientSettings)
        unknown = sorted(set(extra) - set(types))
        if unknown:
            raise ConfigurationInvalid(
                f"the skyplane connection has unknown extra fields: {', '.join(unknown)}; "
                f"known fields: {', '.join(sorted(types))}"
            )
        given: dict[str, Any] = {
            name: _OBJECTS[name](name, value)
            if name in _OBJECTS
            else typed_field(types[name], value, name, "the skyplane connection")
            for name, value in extra.items()
        }
        if connection.password:
            given["fleet_secret"] = connection.password
        return cls(**given)

    def with_ssh_connections(self, get_connection: GetConnection) -> Settings:
        """The same settings, with the hosts that are connections of type `ssh`.

        Raises ConfigurationInvalid: a connection is missing or cannot be used.
        """
        if self.hosts is None:
            return self
        return replace(self, hosts=with_ssh_connections(self.hosts, get_connection))


#: Fields with JSON objects -> an example of one.
_EXAMPLES: Final = {
    "clouds": '{"control_cidrs": ["203.0.113.7/32"], "aws": {}}',
    "gateway_settings": '{"ack_deadline_s": 60}',
    "hosts": '{"local:rack": [{"address": "10.0.0.5"}]}',
}


def _object(name: str, given: object) -> Mapping[str, Any]:
    """An object, or its JSON from the connection's form."""
    try:
        value = parsed(given, "a text that") if isinstance(given, str) else given
        what = f"a {type(value).__name__}"
    except ConfigurationInvalid as error:
        value, what = None, error.message
    if not isinstance(value, dict):
        # Without the value, which may have a secret that belongs elsewhere.
        raise ConfigurationInvalid(
            f"{name} of the skyplane connection must be a JSON object, such as"
            f" {_EXAMPLES[name]}, not {what}"
        )
    return value


def _hosts(name: str, given: object) -> Mapping[str, Any]:
    """The hosts, whose programs are for their administrators to choose."""
    hosts = _object(name, given)
    groups = [group if isinstance(group, list) else [group] for group in hosts.values()]
    entries = [entry for group in groups for entry in group]
    if any(isinstance(entry, dict) and HOST_SECRETS & set(entry) for entry in entries):
        raise ConfigurationInvalid(
            "hosts of the skyplane connection cannot have private keys; name a connection of type"
            " ssh as conn_id of the host"
        )
    named = {name for entry in entries if isinstance(entry, dict) for name in entry}
    for name in sorted(named & _PROGRAMS):
        raise ConfigurationInvalid(
            f"hosts of the skyplane connection cannot have a field {name}, because editing a"
            " connection must not choose a program; use a hosts_file"
        )
    return hosts


#: Fields with JSON objects -> what reads them.
_OBJECTS: Final = {"clouds": _object, "gateway_settings": _object, "hosts": _hosts}
