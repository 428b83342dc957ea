"""What a cloud does for a fleet: instances, tags and a firewall.

`InstanceProvisioner` decides what to start and what to end; a `Machines` carries it out by the
cloud's own API. Tags are the only record, so every worker sees the same fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.provisioner import Finding

#: `ending` and `ended` instances carry no bytes any more; an `ended` one is not billed.
InstanceState = Literal["starting", "running", "ending", "ended"]

#: Ports of an instance: enrolment, then control of each gateway process, then data of each. So a
#: firewall opens one kind with one range, and both kinds to a peer that needs both.
ENROLMENT_PORT: Final = 7600

#: The other choice of `control_port`: what firewalls and proxies of companies let through.
HTTPS_PORT: Final = 443

#: Most gateway processes of an instance; its ports are a range that the firewall opens.
MOST_PROCESSES: Final = 32


def control_port(process: int) -> int:
    """The port of the control API of an instance's gateway, numbered from 0."""
    return ENROLMENT_PORT + 1 + process


def data_port(process: int, processes: int) -> int:
    """The port of the data listener of an instance's gateway, numbered from 0."""
    return ENROLMENT_PORT + 1 + processes + process


@dataclass(frozen=True, slots=True)
class FleetTags:
    """The tags that every resource of a fleet has.

    A cloud writes them under names and in an alphabet of its own.

    Args:
        fleet_key: lower-case hex.
        deployment: owner; a sweep touches only resources of its own deployment.
        generation: number of the rebuild.
        created_unix_s: wall time, whole seconds, at which the fleet was first made.
        hard_end_unix_s: wall time, whole seconds, at which the instances end.
        processes: gateways of each instance.
    """

    fleet_key: str
    deployment: str
    generation: int
    created_unix_s: int
    hard_end_unix_s: int
    processes: int = 1

    def to_texts(self) -> dict[str, str]:
        """Short name of a tag -> its value; a cloud adds its prefix and its alphabet."""
        return {
            "fleet": self.fleet_key,
            "deployment": self.deployment,
            "generation": str(self.generation),
            "created": str(self.created_unix_s),
            "hard_end": str(self.hard_end_unix_s),
            "processes": str(self.processes),
        }

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> FleetTags | None:
        """What `to_texts` wrote; None if it is none of ours.

        Somebody may have changed a tag by hand. Numbers that cannot be read are 0, so that a
        sweep takes the resource for one past its hard end, and never overlooks it.
        """
        if not texts.get("fleet") or not texts.get("deployment"):
            return None
        return cls(
            fleet_key=texts["fleet"],
            deployment=texts["deployment"],
            generation=_number(texts.get("generation")),
            created_unix_s=_number(texts.get("created")),
            hard_end_unix_s=_number(texts.get("hard_end")),
            processes=max(1, _number(texts.get("processes"))),
        )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One instance to launch.

    Args:
        tags: of the fleet.
        instance: its name in the fleet, `region tag/index`.
        region: region tag, `aws:us-east-1`.
        instance_type: the cloud's name, `c7gn.large`.
        launch_id: random lower-case hex, a new one for each launch; a tag of the instance. The
            cloud derives its idempotency token from fleet key, instance and `launch_number`, so
            that two workers cannot launch the same instance twice.
        launch_number: how many instances of this name the fleet has had before.
        user_data: the boot script; holds nothing that works twice.
        is_end: source or sink, so it may need the identity that reads or writes stores; relays
            get none.
        network_tier: of its public address, `premium` or `standard`; empty for the cloud's own.
    """

    tags: FleetTags
    instance: str
    region: str
    instance_type: str
    launch_id: str
    launch_number: int
    user_data: str = field(repr=False)
    is_end: bool
    network_tier: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as its cloud describes it.

    Args:
        tags: of its fleet.
        instance: its name in the fleet, from its tag.
        region: region tag.
        cloud_id: the cloud's own id, `i-0abc`; unique in the region.
        state: see `InstanceState`.
        address: the address that its peers and the orchestrator dial; empty while it has none.
        data_address: the one that its peers dial for data; empty for `address`.
        internal_address: in a network that has all regions of its cloud; empty without one.
        ports: of the control APIs of its gateways, then of their data listeners; empty for those
            that follow `ENROLMENT_PORT`.
        launch_id: see `LaunchRequest`.
        key_id: the pinned id of its public key; empty before its enrolment.
        launched_unix_s: wall time of its launch.
        why_ended: the cloud's reason for an instance that is ending or has ended.
    """

    tags: FleetTags
    instance: str
    region: str
    cloud_id: str
    state: InstanceState
    address: str
    launch_id: str
    key_id: str
    launched_unix_s: float
    why_ended: str = ""
    data_address: str = ""
    internal_address: str = ""
    ports: tuple[int, ...] = ()

    def control(self, process: int) -> tuple[str, int]:
        """Where the control API of a gateway is, numbered from 0."""
        return self.address, self.ports[process] if self.ports else control_port(process)

    def data(self, process: int) -> tuple[str, int]:
        """Where the data listener of a gateway is, numbered from 0."""
        processes = self.tags.processes
        port = self.ports[processes + process] if self.ports else data_port(process, processes)
        return self.data_address or self.address, port

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its gateways."""
        count = self.tags.processes
        if count == 1:
            return (self.instance,)
        return tuple(f"{self.instance}.{process}" for process in range(count))

    @property
    def is_alive(self) -> bool:
        return self.state in ("starting", "running")


@dataclass(frozen=True, slots=True, order=True)
class Ingress:
    """One rule of an instance's firewall: these TCP ports, from these addresses.

    Args:
        first_port, last_port: both included.
        source_cidr: `203.0.113.7/32`.
    """

    first_port: int
    last_port: int
    source_cidr: str


@dataclass(frozen=True, slots=True)
class FleetResource:
    """Something else that a fleet has in a cloud: a firewall, a disk, an address, a group.

    Args:
        kind: the cloud's word, `security-group`.
        cloud_id: the cloud's id or name of it.
        region: region tag.
        tags: of its fleet.
    """

    kind: str
    cloud_id: str
    region: str
    tags: FleetTags


class Reach(NamedTuple):
    """Who can open connections to the instances of a region.

    Args:
        network: regions with the same name of one reach each other.
        is_open: those of every other network too, as far as the fleet's rules let them.
        egress_cidrs: from where others see its connections, if not from its instances' addresses.
    """

    network: str = ""
    is_open: bool = True
    egress_cidrs: tuple[str, ...] = ()


class PublicHosts(NamedTuple):
    """Hosts of a cloud that are on the internet, as its instances are.

    Args:
        api: of its API, which answers at port 443.
        web: one that answers at port 80.
    """

    api: str
    web: str


def tail(output: bytes, most_bytes: int) -> str:
    """The end of a console's output, as text."""
    return output[-most_bytes:].decode(errors="replace") if most_bytes > 0 else ""


class Machines(Protocol):
    """One cloud's API. Every verb may be repeated, and may run at the same time elsewhere.

    All verbs raise:
        CloudAccessDenied: the credentials are refused, or lack a permission.
        CloudUnavailable: the API does not answer or throttles, after retries. It names the regions
            concerned, if others answer.
    Region tags are those of this cloud.
    """

    @property
    def name(self) -> str:
        """`aws`, `gcp`, `azure`: the first part of its region tags."""

    def store_identity(self, region: str) -> str:
        """The kind of stores (`s3`) that a region's sources and sinks open with their own identity.

        Empty if their instances get none.
        """

    @property
    def public_hosts(self) -> PublicHosts | None:
        """None if its instances get no public address, or its API is not that of the internet."""

    @property
    def named_regions(self) -> frozenset[str]:
        """Regions of other clouds that are its own, since their instances are made here."""
        return frozenset()

    def regions(self) -> tuple[str, ...]:
        """Tags of the regions that the account may use, for a search without a plan."""

    def vcpus(self, region: str, instance_type: str) -> int:
        """Of a type. Raises InstanceTypeNotOffered."""

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        """The fleet's instances, ended ones included as long as the cloud shows them.

        One call per region and page, never one per instance.
        """

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        """All that the deployment's fleets have: instances, and everything else."""

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        """Make what instances need before their launch: a closed firewall.

        An existing firewall loses no rule.
        """

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Add rules for workers to the fleet's firewall in a region, which keeps them to its end.

        Each has a rule of its own, which no other worker changes. Raises QuotaExceeded.
        """

    def launch(self, request: LaunchRequest) -> Instance:
        """Launch an instance, or find the one that another worker has just launched.

        Its `launch_id` tells whether it is that of the request. It ends by itself at the hard
        end, by the cloud's own means where there are some. Two workers may launch two instances
        of one name if a zone has capacity for one of them only; the caller keeps the older.

        Raises:
            QuotaExceeded: names the quota.
            CapacityUnavailable: no zone has such an instance now.
            InstanceTypeNotOffered: the region never has such an instance for this account.
            ConfigurationInvalid: the request is not possible.
        """

    def reach_of(self, region: str) -> Reach:
        """Who can open connections to its instances there."""
        return Reach()

    def dial_to(self, fleet_key: str, instance: str) -> Dial | None:
        """How this process connects with an instance; None to dial its address.

        Args:
            instance: its name in the fleet.
        """
        return None

    def pin_key(self, instance: Instance, key_id: str) -> None:
        """Write the id of its public key to a tag of an instance."""

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Set the rules of the fleet's firewall in a region to these, and those of `admit`."""

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Begin to end instances; those that are gone are no error."""

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        """Delete what a fleet has besides instances; those that cannot be deleted yet.

        The caller repeats: a firewall can be deleted once its instances have ended.
        """

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        """What a fleet has besides instances."""

    def console_url(self, fleet_key: str, region: str) -> str:
        """The page of the cloud's web console with the fleet's instances in a region.

        Empty if the cloud has no such page.
        """
        return ""

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        """The end of an instance's console output; empty if there is none yet."""

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        """The quotas of the instance types that plans use, by region."""

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        """All quotas that instances count against, for a report: also families and addresses."""
        return ()

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        """Whether credentials and permissions suffice; launches nothing.

        The first finding is about the credentials; without them it is the only one.

        Args:
            deployment: owner of the fleets; permissions may hold for things with its tag only.
        """
