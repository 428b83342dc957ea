"""Google Cloud for the conformance suite of clouds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.clouds.fakes import open_gce
from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import DELETE, DESCRIBE, LAUNCH, OPEN, TERMINATE

from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions
from strict_clouds.gce import PROJECT, StrictGce
from strict_clouds.gce_facts import ZONES
from strict_clouds.machines import MachineBooter

_METHODS: Final = {
    LAUNCH: "instances.insert",
    DESCRIBE: "instances.aggregatedList",
    TERMINATE: "instances.delete",
    OPEN: "firewalls.insert",
    DELETE: "firewalls.delete",
}
_PERMISSIONS: Final = {
    LAUNCH: "compute.instances.create",
    DESCRIBE: "compute.instances.list",
    TERMINATE: "compute.instances.delete",
    OPEN: "compute.firewalls.create",
    DELETE: "compute.firewalls.delete",
}
#: What the page wants on the account of the gateways, and not in the project.
_ON_ACCOUNTS: Final = ("iam.serviceAccounts.actAs",)
_FOREIGN: Final = "theirs"


class GcpHarness:
    """See `CloudHarness`."""

    region = "gcp:us-central1"
    other_region = "gcp:europe-west1"
    third_region = "gcp:me-west1"
    closed_region = "gcp:africa-south1"
    instance_type = "n2-standard-4"
    vcpus = 4
    quota_name = "N2_CPUS"

    def __init__(self, gce: StrictGce) -> None:
        self.gce = gce
        self.clock = ManualClock(gce.conditions.now_s)

    def gcp(self, **options: Any) -> GcpCloud:
        """A worker with options."""
        chosen = GcpOptions(PROJECT, endpoint_url=self.gce.url, **options)
        return GcpCloud(chosen, clock=self.clock.clock)

    def worker(self) -> Machines:
        return self.gcp()

    def hide_new(self, calls: int) -> None:
        self.gce.conditions.hidden_for = calls

    def end_slowly(self, calls: int) -> None:
        self.gce.conditions.deleting_for = calls

    def lose_reply(self, verb: str) -> None:
        self.gce.lose_reply(_METHODS[verb])

    def throttle(self, verb: str, times: int) -> None:
        self.gce.throttle(_METHODS[verb], times)

    def deny(self, verb: str) -> str:
        self.gce.conditions.denied.add(_PERMISSIONS[verb])
        return _PERMISSIONS[verb]

    def forbid_launches(self) -> str:
        self.gce.conditions.constraints.add("compute.vmExternalIpAccess")
        return "Constraint constraints/compute.vmExternalIpAccess violated"

    def set_quota(self, vcpus: int) -> None:
        self.gce.conditions.vcpu_quota = vcpus

    def fill(self, region: str, *, all_zones: bool) -> None:
        name = region.partition(":")[2]
        letters = ZONES[name] if all_zones else ZONES[name][:1]
        self.gce.conditions.full |= {f"{name}-{letter}" for letter in letters}

    def empty(self) -> None:
        self.gce.conditions.full.clear()

    def unknown_id(self, instance: Instance) -> str:
        return f"{instance.cloud_id.partition('/')[0]}/{'9' * 19}"

    def end_by_hand(self, instance: Instance) -> None:
        self.gce.end_by_hand(instance.cloud_id)

    def leave_a_disk(self, instance: Instance) -> None:
        self.gce.instance(instance.cloud_id)["disks"][0]["autoDelete"] = False

    def launch_foreign(self, name: str) -> None:
        zone = self.gce.instances.zones["us-central1-a"]
        zone.instances[_FOREIGN] = {
            "name": _FOREIGN,
            "id": "42",
            "status": "RUNNING",
            "machineType": "zones/us-central1-a/machineTypes/n2-standard-4",
            "scheduling": {},
            "labels": {"name": name.replace(" ", "-").replace(":", "-").replace("/", "-")},
            "disks": [],
        }
        self.gce.firewalls.rules["skyplane-theirs"] = {
            "name": "skyplane-theirs",
            "description": "theirs",
            "network": "default",
            "direction": "INGRESS",
            "priority": 1000,
            "sourceRanges": ["198.51.100.0/24"],
            "targetTags": ["theirs"],
            "allowed": [{"IPProtocol": "tcp", "ports": ["443"]}],
        }

    def foreign_is_there(self) -> bool:
        instances = self.gce.instances.zones["us-central1-a"].instances
        return instances[_FOREIGN]["status"] == "RUNNING" and any(
            opening.tag == "theirs" for opening in self.gce.openings()
        )

    def firewall(self, region: str) -> set[Ingress]:
        suffix = f"-{region.partition(':')[2]}"
        found = [one for one in self.gce.openings() if one.tag.endswith(suffix)]
        for tag in {one.tag for one in found}:
            assert not self.gce.firewalls.lets_through([tag], 22, "198.51.100.1")
            assert not self.gce.firewalls.lets_through([tag], 8080, "10.128.0.99")
        return {Ingress(one.first_port, one.last_port, one.source) for one in found}

    def name_of(self, resource: FleetResource) -> str:
        return resource.kind

    def launches(self) -> int:
        return len(self.gce.instances.ever_launched)

    def leftovers(self) -> dict[str, list[str]]:
        return self.gce.leftovers()


@contextmanager
def gcp_harness(machines: MachineBooter | None = None) -> Iterator[GcpHarness]:
    with open_gce(machines, also=_ON_ACCOUNTS) as gce:
        yield GcpHarness(gce)
