"""Options of the ssh provisioner: which machines a region has, and how to log in to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from skyplane_gateway.common.schema import check, decode, parsed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import unknown_fields
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.container import require_pinned
from skyplane_orchestration.provision.fleet.options import InstanceOptions

_DEFAULTS: Final = "defaults"
_PORTS: Final = range(1, 65536)
_SSH_PORT: Final = 22
#: `--mount` separates its fields by commas.
_NOT_IN_MOUNTS: Final = frozenset(",\"'")
#: Not for files: secrets that an orchestrator keeps itself.
_SECRETS: Final = frozenset({"private_key", "passphrase"})


@dataclass(frozen=True, slots=True)
class SshHost:
    """A machine that runs gateways of a region.

    Args:
        address: name or address for ssh and for the gateways' control API; an address of the
            machine itself, since gateways listen on it.
        port: of sshd.
        user: account on the machine; empty for the name of this process's user.
        key_file: private key; empty for the agent's keys and the usual files in `~/.ssh`.
        private_key: the private key itself, in the place of a file.
        passphrase: of `private_key` or `key_file`; empty if they have none.
        known_hosts: file with the machine's host key; empty for `~/.ssh/known_hosts`.
        host_key: the machine's host key itself, as `ssh-ed25519 AAAA...`.
        python: Python 3.11 or later on the machine, with the gateway's requirements; empty for
            `python3`, which gets an environment with them if it lacks some.
        directory: directory for fleets on the machine; empty for one in `/tmp`.
        data_address: address of the machine for other gateways; empty for `address`.
        ports: first and last port for gateways, as `40000-40099`; empty for any.
        image: image of the gateway, with its digest, which podman or docker of the machine runs;
            empty for processes of `python`.

    Raises ConfigurationInvalid for an invalid value.
    """

    address: str
    port: int = _SSH_PORT
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    host_key: str = ""
    python: str = ""
    directory: str = ""
    data_address: str = ""
    ports: str = ""
    image: str = ""
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check(self)
        if not self.address:
            raise ConfigurationInvalid("a host has no address")
        if meant := _in_fields(self.address):
            raise ConfigurationInvalid(f"{self.address!r} is no address; write {meant}")
        if self.port not in _PORTS:
            raise ConfigurationInvalid(f"port {self.port} of host {self.address} is not a port")
        if self.key_file and self.private_key:
            raise ConfigurationInvalid(f"host {self.address} has a key_file and a private_key")
        if self.host_key and len(self.host_key.split()) < 2:
            raise ConfigurationInvalid(
                f"host_key of {self.address} must be a type and a key, such as"
                f" 'ssh-ed25519 AAAA...', not {self.host_key!r}"
            )
        if self.directory and not PurePosixPath(self.directory).is_absolute():
            raise ConfigurationInvalid(
                f"directory {self.directory!r} of host {self.address} is not an absolute path"
            )
        if self.ports:
            self.port_range  # noqa: B018 - it refuses a wrong text
        if self.image:
            require_pinned(self.image)
            if set(self.directory) & _NOT_IN_MOUNTS:
                raise ConfigurationInvalid(
                    f"directory {self.directory!r} of host {self.address} cannot be shown to a"
                    " container; use a path without commas and quotes"
                )

    @property
    def port_range(self) -> range:
        """Ports for gateways; empty for any."""
        if not self.ports:
            return range(0)
        first, _, last = self.ports.partition("-")
        if first.isdecimal() and last.isdecimal():
            ports = range(int(first), int(last) + 1)
            if len(ports) > 1 and ports[0] in _PORTS and ports[-1] in _PORTS:
                return ports
        raise ConfigurationInvalid(
            f"ports of host {self.address} must be a first and a last port, such as 40000-40099,"
            f" not {self.ports!r}"
        )

    @property
    def interpreter(self) -> str:
        """The Python that runs the agent."""
        return self.python or "python3"

    @property
    def name(self) -> str:
        """For messages: `user@address:port`, without what is usual."""
        port = "" if self.port == _SSH_PORT else f":{self.port}"
        return f"{self.user}{'@' * bool(self.user)}{self.address}{port}"

    @property
    def known_name(self) -> str:
        """Its name in a file of known hosts."""
        return self.address if self.port == _SSH_PORT else f"[{self.address}]:{self.port}"


def _in_fields(address: str) -> str:
    """What `user@host:port` says, as the fields of a host; empty for an address alone."""
    user, _, place = address.rpartition("://")[2].rstrip("/").rpartition("@")
    host, _, port = place.partition(":")
    if not port.isdecimal():  # An address of IPv6 has more colons.
        host, port = place, ""
    if host == address:
        return ""
    others = [f"port: {port}"] * bool(port) + [f"user: {user}"] * bool(user)
    return " and ".join([", ".join([f"address: {host}", *others[:-1]]), *others[-1:]])


def read_hosts(path: Path) -> dict[str, tuple[SshHost, ...]]:
    """Region tag -> its hosts, from a YAML or JSON file.

    Raises ConfigurationInvalid: the file cannot be read or used; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = parsed(text, f"the hosts file {path}", yaml.safe_load, most_bytes=1 << 20)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationInvalid(f"the hosts file {path} cannot be read: {error}") from error
    try:
        return parse_hosts(document)
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(f"the hosts file {path} cannot be used: {error}") from error


def parse_hosts(
    document: object, *, may_hold_secrets: bool = False
) -> dict[str, tuple[SshHost, ...]]:
    """Region tag -> its hosts. Raises ConfigurationInvalid.

    Args:
        may_hold_secrets: hosts may have `private_key` and `passphrase`.
    """
    if not isinstance(document, dict):
        raise ConfigurationInvalid(
            "it must have region tags with lists of hosts, such as"
            " 'local:rack: [{address: 10.0.0.5}]'"
        )
    defaults = document.get(_DEFAULTS) or {}
    known = [entry.name for entry in fields(SshHost)]
    if not may_hold_secrets:
        known = [name for name in known if name not in _SECRETS]
    regions = {tag: entries for tag, entries in document.items() if tag != _DEFAULTS}
    if not regions:
        raise ConfigurationInvalid("it has no region")
    return {
        parse_region_tag(str(tag)).tag: _hosts(str(tag), entries, defaults, known)
        for tag, entries in regions.items()
    }


def _hosts(
    tag: str, entries: object, defaults: object, known: Sequence[str]
) -> tuple[SshHost, ...]:
    if not isinstance(defaults, dict):
        raise ConfigurationInvalid(f"{_DEFAULTS} must have fields of hosts, not {defaults!r}")
    if not isinstance(entries, list) or not entries:
        raise ConfigurationInvalid(f"region {tag} must have a list of hosts, not {entries!r}")
    hosts = tuple(_host(tag, entry, defaults, known) for entry in entries)
    twice = {host.name for host in hosts if hosts.count(host) > 1}
    if twice:
        raise ConfigurationInvalid(f"region {tag} has {', '.join(sorted(twice))} twice")
    return hosts


def _host(tag: str, entry: object, defaults: Mapping[str, Any], known: Sequence[str]) -> SshHost:
    given = {"address": entry} if isinstance(entry, str) else entry
    if not isinstance(given, dict):
        raise ConfigurationInvalid(f"region {tag} has {entry!r}, which is not a host")
    values = {**defaults, **given}
    unknown = sorted(str(name) for name in set(values) - set(known))
    if unknown:
        raise ConfigurationInvalid(f"a host of {tag} has {unknown_fields(unknown, known)}")
    return decode(SshHost, {"address": "", **values}, f"a host of {tag}")


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How gateways run on other machines.

    Args:
        hosts: region tag -> its machines; instance number N of a region is machine number N.
        source: where the hosts are from, for messages.
        connect_timeout_s: timeout of each step of a login.
        processes_per_instance: gateways of each instance, from 1 to 32; None for as many as give
            each processor of the smallest machine a gateway, up to 8.
        term_grace_s: time from SIGTERM to SIGKILL; the supervisor kills its gateways after 35 s.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown setting or an invalid value.
    """

    hosts: Mapping[str, tuple[SshHost, ...]]
    source: str = "the hosts"
    connect_timeout_s: float = 15.0
    processes_per_instance: int | None = None
    term_grace_s: float = 40.0
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        self.of_instances()
        names = [(host.name, host.directory) for host in self.all_hosts()]
        twice = sorted({name for name, directory in names if names.count((name, directory)) > 1})
        if twice:
            raise ConfigurationInvalid(
                f"{self.source} describes {', '.join(twice)} in two ways; a machine of several"
                " regions needs the same fields in each"
            )

    @classmethod
    def from_file(cls, path: Path, **more: Any) -> SshOptions:
        """Options with the hosts of a file. Raises ConfigurationInvalid."""
        return cls(read_hosts(path), source=f"the hosts file {path}", **more)

    def host_of(self, region: str, index: int, count: int) -> SshHost:
        """The machine of instance `index` of the `count` instances that a plan has in a region.

        Raises ConfigurationInvalid: the region has no such machine.
        """
        hosts = self.hosts.get(region, ())
        if not hosts:
            raise ConfigurationInvalid(
                f"{self.source} has no host for region {region}; add one, or give the location a"
                f" region that it has: {', '.join(sorted(self.hosts))}"
            )
        if len(hosts) < count:
            raise ConfigurationInvalid(
                f"the plan has {count} instances in {region}, and {self.source} has {len(hosts)};"
                f" add hosts, or plan with at most {len(hosts)} (instance_limit)"
            )
        return hosts[index]

    def quota(self, region: str) -> RegionQuota:
        """How many instances a region may have: as many as it has machines."""
        count = len(self.hosts.get(region, ()))
        name = self.source if count else f"{self.source}, which has {', '.join(sorted(self.hosts))}"
        return RegionQuota(region, name, instances=count)

    def of_instances(self) -> InstanceOptions:
        """Those that all fleets of instances have."""
        return InstanceOptions(
            control_cidrs=(),
            processes_per_instance=self.processes_per_instance,
            # An image that must be pulled takes minutes; one that fails is seen at once.
            ready_timeout_s=900.0,
            boot_timeout_s=600.0,
            poll_s=0.5,
            gateway_settings=self.gateway_settings,
        )

    def all_hosts(self) -> tuple[SshHost, ...]:
        """Every machine once."""
        return tuple(dict.fromkeys(host for hosts in self.hosts.values() for host in hosts))
