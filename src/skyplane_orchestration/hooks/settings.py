"""Settings from a `skyplane` connection; the defaults are for a single machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from skyplane_gateway.schema import check, parsed
from skyplane_orchestration.client import FleetTimes
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import ConnectionLike, typed_field
from skyplane_orchestration.hooks.ssh_connections import (
    HOST_SECRETS,
    GetConnection,
    with_ssh_connections,
)
from skyplane_orchestration.model.fleet import LOCAL
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.provision.base import require_fleet_limit
from skyplane_orchestration.provision.choice import ProvisionerChoice
from skyplane_orchestration.security.authority import FleetSecret

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import GatewayPlace
    from skyplane_orchestration.provision.base import Provisioner
    from skyplane_orchestration.security.credentials import CredentialSources

_WHAT: Final = "the skyplane connection"
#: Fields of a host that choose what runs there.
_PROGRAMS: Final = frozenset({"image", "python"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the clients of one connection.

    Args:
        deployment: name of the installation; part of every fleet key.
        provisioner: `local`: gateways are processes on the worker's machine. `ssh`: of the
            machines in `hosts`. `cloud`: on instances, as `clouds` says. `aws`, `gcp`, `azure`:
            the same in that cloud only.
        grid: name or directory of the grid.
        run_root: directory of the local fleets; None: the provisioner's default.
        hosts_file: the machines of each region, for `ssh`.
        hosts: the content of such a file, in its place.
        clouds_file: what instances run, and the settings of each cloud, for `cloud`.
        clouds: the content of such a file, in its place.
        processes_per_instance: gateways of each instance; None: the provisioner's default.
        max_active_fleets: highest number of living fleets of the deployment with which a new one
            may start, itself included; None: no limit.
        gateway_settings: fields of every gateway's configuration, such as timeouts.
        secret: fleet secret; None: a file of the worker's user, for one machine only.
        times: leases of the fleets.
    """

    deployment: str = DEFAULT_DEPLOYMENT
    provisioner: str = LOCAL
    grid: str = "shipped"
    run_root: Path | None = None
    hosts_file: Path | None = None
    hosts: Mapping[str, Any] | None = field(default=None, repr=False)
    clouds_file: Path | None = None
    clouds: Mapping[str, Any] | None = field(default=None, repr=False)
    processes_per_instance: int | None = None
    max_active_fleets: int | None = None
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)
    secret: FleetSecret | None = field(default=None, repr=False)
    times: FleetTimes = field(default_factory=FleetTimes)

    def __post_init__(self) -> None:
        check(self)
        # Its own checks; the connection is read long before a fleet is needed.
        self.provisioner_choice  # noqa: B018
        require_fleet_limit(self.max_active_fleets)

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
        types = {**get_type_hints(cls), **get_type_hints(FleetTimes), "fleet_secret": str}
        del types["secret"], types["times"]
        unknown = sorted(set(extra) - set(types))
        if unknown:
            raise ConfigurationInvalid(
                f"the skyplane connection has unknown extra fields: {', '.join(unknown)}; "
                f"known fields: {', '.join(sorted(types))}"
            )
        given: dict[str, Any] = {
            name: _OBJECTS[name](name, value)
            if name in _OBJECTS
            else typed_field(types[name], value, name, _WHAT)
            for name, value in extra.items()
        }
        secret = given.pop("fleet_secret", None)
        secret = connection.password or secret
        leases = {one.name: given.pop(one.name) for one in fields(FleetTimes) if one.name in given}
        times = FleetTimes(**leases)
        return cls(**given, secret=FleetSecret.from_text(secret) if secret else None, times=times)

    def open_provisioner(
        self, place: GatewayPlace = "always", sources: CredentialSources | None = None
    ) -> Provisioner:
        """See `ProvisionerChoice.open`."""
        return self.provisioner_choice.open(place, sources)

    def with_ssh_connections(self, get_connection: GetConnection) -> Settings:
        """The same settings, with the hosts that are connections of type `ssh`.

        Raises ConfigurationInvalid: a connection is missing or cannot be used.
        """
        if self.hosts is None:
            return self
        return replace(self, hosts=with_ssh_connections(self.hosts, get_connection))

    @property
    def provisioner_choice(self) -> ProvisionerChoice:
        """Raises ConfigurationInvalid: the settings do not fit together."""
        names = (one.name for one in fields(ProvisionerChoice))
        return ProvisionerChoice(**{name: getattr(self, name) for name in names})


#: Fields with JSON objects -> an example of one.
_EXAMPLES: Final = {
    "clouds": '{"image": "...", "control_cidrs": ["203.0.113.7/32"], "aws": {}}',
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
