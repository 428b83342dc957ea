"""`SshMachines`: hosts that one has, as the `Machines` of the ssh provisioner."""

from __future__ import annotations

import errno
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    GatewayUnreachable,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import SSH
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    InstanceState,
    LaunchRequest,
    Machines,
)
from skyplane_orchestration.provision.fleet.software import gateway_archive
from skyplane_orchestration.provision.gateway_settings import open_files
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.provision.ssh.boot_script import boot_script
from skyplane_orchestration.provision.ssh.options import SshHost, SshOptions

if TYPE_CHECKING:
    from skyplane_orchestration.provision.ssh.connection import HostSession

T = TypeVar("T")
log = logging.getLogger(__name__)

_DIRECTORY: Final = "directory"
#: An answer comes within this time; a slow disk may delay it.
_ANSWER_TIMEOUT_S: Final = 60.0
#: A trial may pull an image, or install the requirements of gateways.
_TRIAL_TIMEOUT_S: Final = 900.0
#: S3 refuses requests whose time is 15 minutes off. A clock that is far off does not stay there.
_MOST_SECONDS_OFF: Final = 300.0
#: The directory for fleets is not the account's, or cannot be made.
_WRONG_DIRECTORY: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.EROFS}
)


class HostSessions:
    """Logs in to a host at its first request, and again after its connection has broken."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._locks: dict[SshHost, threading.Lock] = {}
        self._open: dict[SshHost, HostSession] = {}
        weakref.finalize(self, _close_all, self._open)

    def of(self, host: SshHost) -> HostSession:
        """Raises the errors of `HostSession`, and MissingExtra."""
        try:
            from skyplane_orchestration.provision.ssh.connection import HostSession
        except ImportError as error:
            raise MissingExtra.of("the provisioner 'ssh'", "ssh") from error
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        with lock:
            known = self._open.get(host)
            if known is None or not known.is_open:
                self._open[host] = known = HostSession(host, self._timeout_s)
            return known


def _close_all(sessions: dict[SshHost, HostSession]) -> None:
    for session in sessions.values():
        session.close()


class SshMachines(Machines):
    """See `Machines`. All regions are here, and an instance is a directory of a host.

    Args:
        passed_over: hosts that are not asked, since they cannot be reached.
    """

    name = SSH
    public_hosts = None

    def __init__(
        self,
        options: SshOptions,
        sessions: HostSessions,
        clock: Clock = SYSTEM_CLOCK,
        passed_over: frozenset[SshHost] = frozenset(),
    ) -> None:
        self._options = options
        self._sessions = sessions
        self._clock = clock
        self._passed_over = passed_over

    def store_identity(self, region: str) -> str:
        return ""

    def regions(self) -> tuple[str, ...]:
        return tuple(self._options.hosts)

    def vcpus(self, region: str, instance_type: str) -> int:
        """Of the smallest host: its processors are for all regions that it has."""
        hosts = self._options.hosts[region]
        facts = zip(hosts, in_parallel(hosts, self._facts), strict=True)
        shares = (int(one["processors"]) // len(self._regions_of(host)) for host, one in facts)
        return max(1, min(shares))

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return tuple(one for one in self._described(regions) if one.tags.fleet_key == fleet_key)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        found = [one for one in self._described(regions) if one.tags.deployment == deployment]
        return tuple(found), _directories(found)

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        """Nothing: hosts have their own firewalls."""

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Nothing: hosts have their own firewalls."""

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Nothing: hosts have their own firewalls."""

    def launch(self, request: LaunchRequest) -> Instance:
        """Make the instance's directory and run its boot script.

        `user_data` is the enrolment document.
        """
        index = int(request.instance.rpartition("/")[2])
        host = self._options.host_of(request.region, index, index + 1)
        tags = {
            **request.tags.to_texts(),
            "instance": request.instance,
            "region": request.region,
            "launch": request.launch_id,
        }
        labels = {f"skyplane:{name}": tags[name] for name in ("deployment", "fleet", "instance")}
        script = boot_script(host, request.user_data, labels, is_end=request.is_end)
        found = self._ask(
            host,
            "launch",
            b"" if host.image else gateway_archive(),
            tags=tags,
            # A colon would end a path in PYTHONPATH.
            name=quote(request.instance, safe=""),
            number=request.launch_number,
            **_boot_request(host, script, request.tags.processes),
        )
        return self._instance(host, found, 0.0)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        host, path = self._place(instance)
        pinned = self._ask(host, "pin", path=path, key_id=key_id)
        if pinned != key_id:
            raise NotAuthorised(
                f"instance {instance.instance} on host {host.name} has shown the key {key_id} to"
                f" this worker, and another one ({pinned}) to another worker; end the instance"
            )

    def terminate(self, instances: Sequence[Instance]) -> None:
        paths, grace_s = self._paths(instances), self._options.term_grace_s
        in_parallel(
            paths, lambda host: self._ask(host, "terminate", paths=paths[host], grace_s=grace_s)
        )

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        left: set[str] = set()
        for host, paths in self._paths(resources).items():
            left.update(f"{host.name}:{path}" for path in self._ask(host, "remove", paths=paths))
        return tuple(one for one in resources if one.cloud_id in left)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return _directories(self.describe(fleet_key, regions))

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        host, path = self._place(instance)
        return str(self._ask(host, "tail", path=path, max_bytes=max_bytes))

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return tuple(self._options.quota(region) for region in regions)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        """One finding for each good host, and one for each thing that a host lacks."""
        found = in_parallel(self._options.all_hosts(), self._findings)
        return tuple(one for group in found for one in group)

    def _findings(self, host: SshHost) -> list[Finding]:
        name = f"host {host.name}"
        try:
            before_s = self._clock.wall()
            facts = self._facts(host)
            # An error of half a round trip is possible.
            ahead_s = facts["now_unix_s"] - (before_s + self._clock.wall()) / 2
            lacks = self._ask(
                host,
                "trial",
                b"" if host.image else gateway_archive(),
                timeout_s=_TRIAL_TIMEOUT_S,
                open_files=open_files(self._options.gateway_settings),
                **_boot_request(host, boot_script(host), 1),
            )
        except SkyplaneError as error:
            return [Finding(name, False, str(error))]
        offset = f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this one"
        if abs(ahead_s) > _MOST_SECONDS_OFF:
            lacks.append(f"its clock is {offset}; set both by NTP")
        if lacks:
            return [Finding(name, False, lack) for lack in lacks]
        program = f"Python {'.'.join(map(str, facts['version']))}"
        what = f"{program}{' and the image' if host.image else ''}"
        processors = counted(facts["processors"], "processor")
        ports = f"the ports {host.ports}" if host.ports else "any free port"
        return [Finding(name, True, f"{what}, {processors}, {ports}, its clock is {offset}")]

    # -- besides `Machines`

    def reachable(self) -> tuple[SshMachines, tuple[SkyplaneFailure, ...]]:
        """The same without the hosts that cannot be reached now, and why not.

        One lost host must not keep the gateways of the others alive.
        """
        failures: dict[SshHost, SkyplaneFailure] = {}

        def look(host: SshHost) -> None:
            try:
                self._facts(host)
            except (GatewayUnreachable, NotAuthorised) as error:
                failures[host] = error

        in_parallel(self._options.all_hosts(), look)
        return (
            SshMachines(self._options, self._sessions, self._clock, frozenset(failures)),
            tuple(failures.values()),
        )

    def require(self, hosts: Sequence[SshHost]) -> None:
        """Raise the error of the first host that cannot be used."""
        in_parallel(hosts, self._facts)

    # -- requests

    def _described(self, regions: Sequence[str]) -> list[Instance]:
        hosts = [
            host
            for host in self._options.all_hosts()
            if host not in self._passed_over and set(self._regions_of(host)) & set(regions)
        ]
        silent: list[tuple[SshHost, GatewayUnreachable]] = []

        def of_host(host: SshHost) -> list[Instance]:
            try:
                facts = self._facts(host)
            except GatewayUnreachable as error:
                silent.append((host, error))
                return []
            behind_s = self._clock.wall() - facts["now_unix_s"]
            return [self._instance(host, one, behind_s) for one in facts["instances"]]

        found = in_parallel(hosts, of_host)
        for host, error in silent:
            unavailable = CloudUnavailable(str(error))
            unavailable.regions = self._regions_of(host)
            raise unavailable from error
        return [one for group in found for one in group if one.region in regions]

    def _instance(self, host: SshHost, found: Mapping[str, Any], behind_s: float) -> Instance:
        tags = FleetTags.from_texts(found)
        assert tags is not None, "the host's script reads what it wrote"
        state: InstanceState = found["state"]
        # A host that has moved to another region is swept all the same.
        regions = self._regions_of(host)
        return Instance(
            tags=tags,
            instance=found["instance"],
            region=found["region"] if found["region"] in regions else regions[0],
            cloud_id=f"{host.name}:{found['path']}",
            state=state,
            address=host.address,
            launch_id=found["launch"],
            key_id=found["key"],
            launched_unix_s=found["launched"] + behind_s,
            data_address=host.data_address,
            ports=tuple(found["ports"]),
        )

    def _facts(self, host: SshHost) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self._ask(host, "describe")
        if facts["version"] < [3, 11]:
            version = ".".join(map(str, facts["version"][:2]))
            raise ConfigurationInvalid(
                f"{host.interpreter} on host {host.name} is Python {version}, and gateways need"
                " 3.11 or later; name another one as its python"
            )
        return facts

    def _ask(
        self,
        host: SshHost,
        verb: str,
        archive: bytes = b"",
        timeout_s: float = _ANSWER_TIMEOUT_S,
        **request: Any,
    ) -> Any:
        """The value of a verb. Raises ConfigurationInvalid and ProvisionFailed, by errno."""
        try:
            return self._sessions.of(host).ask(
                verb, archive, timeout_s=timeout_s, root=host.directory, **request
            )
        except OSError as error:
            kind = ConfigurationInvalid if error.errno in _WRONG_DIRECTORY else ProvisionFailed
            raise kind(f"{error.strerror}") from error

    def _regions_of(self, host: SshHost) -> tuple[str, ...]:
        return tuple(tag for tag, hosts in self._options.hosts.items() if host in hosts)

    def _place(self, item: Instance | FleetResource) -> tuple[SshHost, str]:
        for host in self._options.all_hosts():
            begin = f"{host.name}:{host.directory}/" if host.directory else f"{host.name}:/"
            if item.cloud_id.startswith(begin):
                return host, item.cloud_id.removeprefix(f"{host.name}:")
        raise ConfigurationInvalid(f"{self._options.source} has no host of {item.cloud_id}")

    def _paths(
        self, items: Sequence[Instance] | Sequence[FleetResource]
    ) -> dict[SshHost, list[str]]:
        paths: dict[SshHost, list[str]] = {}
        for host, path in map(self._place, items):
            paths.setdefault(host, []).append(path)
        return paths


SkyplaneFailure = GatewayUnreachable | NotAuthorised


def _boot_request(host: SshHost, script: str, processes: int) -> dict[str, Any]:
    """What a launch and a trial need."""
    ports = host.port_range
    return {
        "image": host.image,
        "script": script,
        "archive_bytes": 0 if host.image else len(gateway_archive()),
        "processes": processes,
        "port_range": [ports[0], ports[-1]] if ports else [0, 0],
        "addresses": [host.address, host.data_address or host.address],
    }


def _directories(instances: Sequence[Instance]) -> tuple[FleetResource, ...]:
    """Of instances that run too: they are removed once these have ended."""
    return tuple(FleetResource(_DIRECTORY, one.cloud_id, one.region, one.tags) for one in instances)
