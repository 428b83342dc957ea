"""A cloud in memory, whose instances are stand-ins for gateways.

Several workers share one `MemoryAccount`; each has clouds, boot and sessions of its own.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import GatewayConfig, Topology
from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    GatewayUnreachable,
    QuotaExceeded,
)
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.error_rules import torn_down
from skyplane_orchestration.provision.fleet.ingress_rules import normal
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    Machines,
)
from skyplane_orchestration.provision.provisioner import Finding

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

FIREWALL = "firewall"


@dataclass
class Gateway:
    """What a stand-in was told."""

    node: str
    topologies: list[Any] = field(default_factory=list)
    renewals: list[float | None] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)


@dataclass
class MemoryAccount:
    """All that exists in the clouds of one account.

    Args:
        failing: names of instances that end as soon as they run.
        mute: names of instances that never listen.
        hidden_looks: how many times a new instance is not in a description.
        slow_ends: how many descriptions show an instance as `ending`.
        refusals: instance -> the error of its launch.
        vcpu_quota: of each region; an instance has one.
        full: regions without capacity.
        is_closed: it refuses launches and checks.
        store_identity: see `Machines`.
        launched: all requests for instances.
    """

    failing: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    hidden_looks: int = 0
    slow_ends: int = 0
    refusals: dict[str, Exception] = field(default_factory=dict)
    vcpu_quota: int = 1000
    full: set[str] = field(default_factory=set)
    is_closed: bool = False
    store_identity: str = ""
    instances: dict[str, Instance] = field(default_factory=dict)
    firewalls: dict[tuple[str, str], tuple[FleetTags, set[Ingress]]] = field(default_factory=dict)
    admitted: dict[tuple[str, str], set[Ingress]] = field(default_factory=dict)
    gateways: dict[tuple[str, int], Gateway] = field(default_factory=dict)
    enrolled: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    launched: list[LaunchRequest] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _looks: dict[str, int] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _tokens: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def launch(self, request: LaunchRequest) -> Instance:
        with self.lock:
            self.calls.append("launch")
            self.launched.append(request)
            if self.is_closed:
                raise CloudAccessDenied("the account is closed")
            if request.instance in self.refusals:
                raise self.refusals[request.instance]
            assert (request.region, request.tags.fleet_key) in self.firewalls, "no firewall"
            for launch_number in itertools.count(request.launch_number):
                token = (request.tags.fleet_key, request.instance, launch_number)
                if token not in self._tokens:
                    break
                if (known := self.instances[self._tokens[token]]).is_alive:
                    return known
            self._require_room(request)
            number = next(self._ids)
            cloud_id = f"i-{number:08x}"
            self._tokens[token] = cloud_id
            self.instances[cloud_id] = Instance(
                tags=request.tags,
                instance=request.instance,
                region=request.region,
                cloud_id=cloud_id,
                state="starting",
                address="",
                launch_id=request.launch_id,
                key_id="",
                launched_unix_s=time.time(),
            )
            return self.instances[cloud_id]

    def _require_room(self, request: LaunchRequest) -> None:
        region = request.region
        if region in self.full:
            raise CapacityUnavailable(f"{region} has no {request.instance_type}")
        if sum(one.region == region for one in self.alive()) >= self.vcpu_quota:
            said = f"the quota vCPUs in memory of {region} is used up"
            raise QuotaExceeded(said, quota="vCPUs in memory")

    def look(self, cloud_id: str) -> Instance | None:
        """An instance as a description shows it; time passes for it with each look."""
        with self.lock:
            looks = self._looks[cloud_id] = self._looks.get(cloud_id, 0) + 1
            instance = self.instances[cloud_id]
            if instance.state == "starting" and looks > self.hidden_looks:
                if instance.instance in self.failing:
                    self.end(cloud_id, "cannot bind")
                else:
                    number = int(cloud_id[2:], 16)
                    self._set(cloud_id, state="running", address=f"198.51.100.{number}")
            elif cloud_id in self._stopped:
                pass
            elif instance.state == "ending" and looks > self._ending_at(cloud_id) + self.slow_ends:
                self._set(cloud_id, state="ended", address="")
            return self.instances[cloud_id] if looks > self.hidden_looks else None

    def end(self, cloud_id: str, why: str = "") -> None:
        with self.lock:
            if cloud_id not in self.instances:
                return
            address = self.instances[cloud_id].address
            self.gateways = {at: one for at, one in self.gateways.items() if at[0] != address}
            is_stopped = cloud_id in self._stopped
            self._stopped.discard(cloud_id)
            if is_stopped or self.instances[cloud_id].state not in ("ending", "ended"):
                state = "ending" if self.slow_ends and not why else "ended"
                self._looks[f"end {cloud_id}"] = self._looks.get(cloud_id, 0)
                self._set(cloud_id, state=state, why_ended=why)

    def stop(self, cloud_id: str) -> None:
        """It powers itself off, and its disk stays until somebody ends it."""
        with self.lock:
            self._stopped.add(cloud_id)
            self._set(cloud_id, state="ending", address="", why_ended="it has stopped")

    def alive(self) -> list[Instance]:
        return [one for one in self.instances.values() if one.state != "ended"]

    def _ending_at(self, cloud_id: str) -> int:
        return self._looks.get(f"end {cloud_id}", 0)

    def _set(self, cloud_id: str, **changes: Any) -> None:
        self.instances[cloud_id] = replace(self.instances[cloud_id], **changes)

    def pin(self, cloud_id: str, key_id: str) -> None:
        with self.lock:
            self._set(cloud_id, key_id=key_id)

    def enrol(
        self,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        """See `EnrolsStandIns`."""
        with self.lock:
            now = self.instances[instance.cloud_id]
            is_mute = now.instance in self.mute or now.cloud_id in self.enrolled
            if now.state != "running" or is_mute:
                raise GatewayUnreachable(f"{instance.instance} does not listen")
            key_id = f"{int(instance.cloud_id[2:], 16):040x}"
            pin(key_id)
            self.enrolled.add(now.cloud_id)
            for node, config in gateways.items():
                self.gateways[now.address, config.control_port] = Gateway(node)
            return key_id


class MemoryCloud(Machines):
    """See `Machines`; `die` is called before each change, and may end the worker."""

    name = ""

    def __init__(
        self,
        name: str,
        account: MemoryAccount,
        die: Callable[[str], None] = lambda verb: None,
        regions: tuple[str, ...] = (),
    ) -> None:
        self._regions = regions
        self.name = name
        self.account = account
        self._die = die

    @property
    def public_hosts(self) -> None:
        return None

    def store_identity(self, region: str) -> str:
        return self.account.store_identity

    def regions(self) -> tuple[str, ...]:
        known = {"aws": "us-east-1", "gcp": "us-central1", "azure": "westeurope"}
        return self._regions or (f"{self.name}:{known[self.name]}",)

    def vcpus(self, region: str, instance_type: str) -> int:
        return 1

    def console_url(self, fleet_key: str, region: str) -> str:
        return "" if self.name == "gcp" else f"https://{self.name}.test/{fleet_key}"

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        self._die("describe")
        with self.account.lock:
            seen = [
                self.account.look(cloud_id)
                for cloud_id, one in self.account.instances.items()
                if one.tags.fleet_key == fleet_key and one.region in regions
            ]
        return tuple(one for one in seen if one is not None)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        keys = {one.tags.fleet_key for one in self.account.instances.values()}
        keys |= {key for _, key in self.account.firewalls}
        instances = [one for key in sorted(keys) for one in self.describe(key, regions)]
        rest = [one for key in sorted(keys) for one in self.leftovers(key, regions)]
        return (
            tuple(one for one in instances if one.tags.deployment == deployment),
            tuple(one for one in rest if one.tags.deployment == deployment),
        )

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        self._die("create_firewalls")
        with self.account.lock:
            for region in regions:
                self.account.firewalls.setdefault((region, tags.fleet_key), (tags, set()))

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._die("admit")
        with self.account.lock:
            place = (region, tags.fleet_key)
            if place not in self.account.firewalls:
                raise torn_down(f"the firewall of {region}")
            self.account.admitted.setdefault(place, set()).update(normal(ingress))

    def launch(self, request: LaunchRequest) -> Instance:
        self._die("launch")
        return self.account.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        self._die("pin_key")
        self.account.pin(instance.cloud_id, key_id)

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._die("set_ingress")
        with self.account.lock:
            place = (region, tags.fleet_key)
            if place not in self.account.firewalls:
                raise torn_down(f"the firewall of {region}")
            self.account.firewalls[place] = (tags, set(normal(ingress)))

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._die("terminate")
        for instance in instances:
            self.account.end(instance.cloud_id)

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        self._die("delete_leftovers")
        left = []
        with self.account.lock:
            for one in resources:
                users = [
                    user
                    for user in self.account.alive()
                    if (user.region, user.tags.fleet_key) == (one.region, one.tags.fleet_key)
                ]
                if users:
                    left.append(one)
                else:
                    place = (one.region, one.tags.fleet_key)
                    self.account.firewalls.pop(place, None)
                    self.account.admitted.pop(place, None)
        return tuple(left)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        with self.account.lock:
            return tuple(
                FleetResource(FIREWALL, f"fw-{key}", region, tags)
                for (region, key), (tags, _) in self.account.firewalls.items()
                if key == fleet_key and region in regions
            )

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        return f"{instance.instance}: {instance.why_ended or 'up'}"

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return tuple(RegionQuota(region, "vCPUs in memory", 64) for region in regions)

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        return tuple(QuotaUse(region, "vCPUs in memory", "vCPUs", 64, 0) for region in regions)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        if self.account.is_closed:
            raise CloudAccessDenied("the account is closed")
        return (Finding(f"{self.name} account", True, "it is in memory"),)


class EnrolsStandIns(Protocol):
    """Where stand-ins listen."""

    def enrol(
        self,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        """Pin a stand-in's key and give it its gateways; the key's id."""


class StandInBoot(Boot):
    """What boots are stand-ins."""

    def __init__(self, place: EnrolsStandIns) -> None:
        self._place = place

    def user_data(
        self,
        authority: Authority,
        tags: FleetTags,
        *,
        instance: str,
        launch_id: str,
        start_within_s: float,
    ) -> str:
        return json.dumps({"instance": instance, "launch_id": launch_id, "token_hex": ""})

    def enrol(
        self,
        authority: Authority,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        return self._place.enrol(instance, gateways, pin)


class HasGateways(Protocol):
    """Where stand-ins run."""

    @property
    def gateways(self) -> Mapping[tuple[str, int], Gateway]:
        """The address of a control API -> its gateway."""


class HoldsStandIns(EnrolsStandIns, HasGateways, Protocol):
    """Both; `failing` has the names of instances that end in place of an enrolment."""

    failing: set[str]


class MemorySession:
    """A control session with a stand-in."""

    def __init__(self, place: HasGateways, address: tuple[str, int], expected_uri: str) -> None:
        self._place = place
        self._address = address
        self._expected_uri = expected_uri

    def _gateway(self) -> Gateway:
        found = self._place.gateways.get(self._address)
        if found is None:
            raise GatewayUnreachable(f"{self._address} does not answer")
        assert self._expected_uri.endswith(gateway_uri("", found.node).rpartition("/")[2])
        return found

    def status(self) -> dict[str, Any]:
        return {"connected": bool(self._gateway().topologies)}

    def put_topology(self, topology: Topology) -> None:
        self._gateway().topologies.append(topology.to_dict())

    def put_plan(self, plan: Mapping[str, Any]) -> None:
        self._gateway().plan = dict(plan)

    def plan(self) -> dict[str, Any]:
        return self._gateway().plan

    def renew(self, lease_s: float | None = None) -> None:
        self._gateway().renewals.append(lease_s)

    def close(self) -> None:
        pass
