"""The gateways of one plan, as provision returns them.

A fleet document passes through XCom and files. It holds addresses and fingerprints, never a
secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from skyplane_gateway.common.schema import Document, decode
from skyplane_gateway.config import Route
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.job import Encryption
from skyplane_orchestration.model.plan import TransferPlan

SCHEMA_VERSION: Final = 1

#: Where gateways run. `auto`: inside this process for small jobs. `always`: as processes of their
#: own, or on instances. `never`: always inside.
GatewayPlace = Literal["auto", "always", "never"]

#: What gateways on other machines get: `limited`: sessions that reach the places of the job only;
#: `whole`: the credentials that the orchestrator itself uses.
GatewayCredentials = Literal["limited", "whole"]

#: The provisioner that runs gateways as processes of this machine.
LOCAL: Final = "local"
#: The provisioner that runs gateways as processes of machines that it reaches over ssh.
SSH: Final = "ssh"
#: The provisioner that runs gateways on instances that it launches in clouds.
CLOUD: Final = "cloud"
#: One of those clouds, for clusters: gateways are Pods.
KUBERNETES: Final = "kubernetes"
#: A detail of a gateway: the kind of stores that it opens with an identity of its instance.
STORE_IDENTITY: Final = "store_identity"
#: Another: its address in a network that has all regions of its cloud.
INTERNAL_HOST: Final = "internal_host"
#: The provisioner whose gateways are a thread of the process that made them.
IN_PROCESS: Final = "in-process"

_WHERE: Final = {
    LOCAL: "gateways are processes of this machine, and all bytes pass through it",
    SSH: "gateways are processes of the machines in the hosts file, reached over ssh",
    CLOUD: "gateways run on instances in the plan's regions, launched for this fleet",
    IN_PROCESS: "this process copied the objects itself, without gateways of their own",
}


def where_gateways_run(provisioner: str) -> str:
    """A sentence about a provisioner's gateways, for logs and metadata."""
    named = f"gateways are run by the provisioner {provisioner!r}" if provisioner else "no gateways"
    return _WHERE.get(provisioner, named)


def instance_of(node: str) -> str:
    """The instance of a gateway, as `region tag/index`."""
    region, slash, name = node.rpartition("/")
    return region + slash + name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class GatewayHandle(Document, what="a gateway"):
    """One gateway of a fleet.

    Args:
        node: `region tag/index` of its instance, where that has one gateway;
            `region tag/index.process` where it has several.
        region: region tag.
        control: (host, port) of the control API.
        data: (host, port) of the data listener.
        fingerprint: SHA-256 of its certificate, hex; on a cloud's instance, the id of the
            instance's key; empty if it has neither.
        details: the provisioner's own facts (`pid`, `instance_id`), as text.
    """

    node: str
    region: str
    control: tuple[str, int]
    data: tuple[str, int]
    fingerprint: str
    details: Mapping[str, str] = field(default_factory=dict)

    def data_for(self, dialer: GatewayHandle) -> tuple[str, int]:
        """Where a gateway of the same fleet dials its data listener.

        It is the internal address if one network of a cloud has both.
        """
        is_one_cloud = self.region.partition(":")[0] == dialer.region.partition(":")[0]
        if is_one_cloud and INTERNAL_HOST in self.details and INTERNAL_HOST in dialer.details:
            return self.details[INTERNAL_HOST], self.data[1]
        return self.data


@dataclass(frozen=True, slots=True)
class FleetInstance:
    """One instance that a cloud bills for a fleet.

    Args:
        name: `region tag/index`; a replaced instance has the name of its successor.
        region: region tag.
        cloud_id: the cloud's own id.
        launched_unix_s: wall time of its launch.
        ended_unix_s: wall time by which it had ended; None while it is a member.
        usd_per_hour: its price, for an instance of an earlier plan; None for that of the plan.
    """

    name: str
    region: str
    cloud_id: str
    launched_unix_s: float
    ended_unix_s: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet(Document, what="a fleet", version=SCHEMA_VERSION):
    """Gateways that are up and connected, under one fleet key.

    Args:
        key: fleet key (see `identity`).
        generation: which rebuild of this fleet it is.
        deployment: the deployment id that the fleet is tagged with.
        provisioner: `local`, ...
        plan: the plan that the fleet was built for.
        gateways: the members; none where the plan needs none.
        routes: the fleet's routes, as `skyplane_gateway.config.Route` values in JSON form.
        host: name and boot id of the machine, for fleets that only this machine can reach.
        provision_s: duration of provisioning.
        hard_end_unix_s: wall time at which the gateways end, whatever happens.
        instances: what clouds bill; none for gateways on machines that the user has anyway.
        console_urls: region tag -> page of the cloud's web console with the instances there.
        probes: what was measured between the gateways; the plan was made on it.
        whole_plan: of a fleet with several destinations, as one of its transfers sees it (see
            `towards`); `plan` leads to its destination alone then.
    """

    key: str
    generation: int
    deployment: str
    provisioner: str
    plan: TransferPlan
    gateways: tuple[GatewayHandle, ...]
    routes: tuple[Mapping[str, Any], ...]
    host: str
    provision_s: float
    hard_end_unix_s: float
    instances: tuple[FleetInstance, ...] = ()
    console_urls: Mapping[str, str] = field(default_factory=dict)
    probes: tuple[EdgeMeasurement, ...] = ()
    whole_plan: TransferPlan | None = None

    def towards(self, region: str) -> Fleet:
        """The fleet as the transfer to one of several destinations sees it."""
        whole = self.built_plan
        if not whole.trees:
            return self
        plan = whole.branch(region)
        own = tuple(one for one in self.instances if one.region in plan.instances)
        return replace(self, plan=plan, whole_plan=whole, instances=own)

    @property
    def built_plan(self) -> TransferPlan:
        """The plan that all gateways together carry out."""
        return self.whole_plan or self.plan

    def as_before(self, earlier: Fleet) -> Fleet:
        """This fleet, which was brought up again, as its user has seen the earlier one."""
        made = replace(self, probes=earlier.probes)
        return made if earlier.whole_plan is None else made.towards(earlier.plan.dst)

    @classmethod
    def without_gateways(cls, key: str, deployment: str, plan: TransferPlan) -> Fleet:
        """The fleet of a plan that has nothing to copy."""
        return cls(key, 0, deployment, "", plan, (), (), "", 0.0, 0.0)

    @property
    def size(self) -> str:
        """The number of gateways, and of their instances if that is another, for people."""
        gateways = counted(len(self.gateways), "gateway")
        instances = {instance_of(gateway.node) for gateway in self.gateways}
        if len(instances) == len(self.gateways):
            return gateways
        return f"{gateways} on {counted(len(instances), 'instance')}"

    def gateway(self, node: str) -> GatewayHandle:
        for handle in self.gateways:
            if handle.node == node:
                return handle
        raise KeyError(node)

    @property
    def sources(self) -> tuple[GatewayHandle, ...]:
        """Gateways that read from the source; the first is asked to lead."""
        nodes = dict.fromkeys(route["nodes"][0] for route in self._own_routes)
        return tuple(self.gateway(node) for node in nodes)

    @property
    def sinks(self) -> tuple[GatewayHandle, ...]:
        nodes = dict.fromkeys(route["nodes"][-1] for route in self._own_routes)
        return tuple(self.gateway(node) for node in nodes)

    @property
    def _own_routes(self) -> list[Mapping[str, Any]]:
        """Those of the transfers on it: all, or those to one of several destinations."""
        return [
            route
            for route in self.routes
            if self.whole_plan is None or self.gateway(route["nodes"][-1]).region == self.plan.dst
        ]

    @property
    def resume_key(self) -> str:
        """Key of the fleet that continues its transfer. With several destinations each has its own:
        the others may still use this fleet."""
        if self.whole_plan is None:
            return self.key
        text = f"{self.key} {self.plan.dst}"
        return hashlib.sha256(text.encode()).hexdigest()[: len(self.key)]

    @property
    def start_id(self) -> str:
        """Differs from that of a rebuilt fleet, and of one with restarted sources or sinks."""
        prints = sorted({handle.fingerprint for handle in (*self.sources, *self.sinks)})
        return " ".join((repr(self.hard_end_unix_s), *prints))

    def encrypts(self, rule: Encryption) -> bool:
        """Whether the gateways encrypt a transfer with that rule, if they send it at all."""
        is_wanted = rule == "always" or (rule == "auto" and not self.host)
        return is_wanted and any(len(route["nodes"]) > 1 for route in self.routes)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fleet:
        """Raises ConfigurationInvalid for another schema version or a broken document."""
        fleet = decode(cls, data, "a fleet", version=SCHEMA_VERSION)
        known = {handle.node for handle in fleet.gateways}
        for document in fleet.routes:
            route = Route.from_dict(document)
            if not known.issuperset(route.nodes):
                raise ConfigurationInvalid(
                    f"a fleet whose route {route.number} leads through gateways that it does not "
                    f"have ({', '.join(sorted({*route.nodes} - known))}) cannot be used"
                )
        return fleet
