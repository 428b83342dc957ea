"""A cloud in memory for the conformance suite of clouds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import (
    DELETE,
    DISKS,
    FOREIGN,
    LOST_ANSWERS,
    NO_SUCH_TYPE,
    OPEN,
    ORGANISATION_POLICY,
    ZONES,
)
from tests.provision.fleet.memory_cloud import MemoryAccount, MemoryCloud
from tests.provision.situations import THROTTLED_API

from skyplane_orchestration.errors import CloudAccessDenied
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)

_ITS_CLIENT = "the client of a cloud repeats its calls, and this one has none"


class MemoryHarness:
    """See `CloudHarness`."""

    region = "aws:us-east-1"
    other_region = "aws:eu-west-3"
    third_region = "aws:eu-south-2"
    closed_region = "aws:af-south-1"
    instance_type = "process"
    vcpus = 1
    quota_name = "vCPUs in memory"
    lacks: Mapping[str, str] = {
        ZONES: "its regions have one zone",
        DISKS: "its instances have none",
        ORGANISATION_POLICY: "it belongs to nobody",
        FOREIGN: "all that it has is of a fleet",
        NO_SUCH_TYPE: "it has instances of every type",
        LOST_ANSWERS: _ITS_CLIENT,
        THROTTLED_API: _ITS_CLIENT,
    }

    def __init__(self) -> None:
        self.account = MemoryAccount()
        self.clock = ManualClock(time.time())
        self._denied: set[str] = set()

    def worker(self) -> Machines:
        regions = self.region, self.other_region, self.third_region
        return MemoryCloud("aws", self.account, self._require_permission, regions)

    def _require_permission(self, verb: str) -> None:
        if verb in self._denied:
            raise CloudAccessDenied(f"the account may not {verb}")

    def hide_new(self, calls: int) -> None:
        self.account.hidden_looks = calls

    def end_slowly(self, calls: int) -> None:
        self.account.slow_ends = calls - 1

    def deny(self, verb: str) -> str:
        name = {OPEN: "create_firewalls", DELETE: "delete_leftovers"}.get(verb, verb)
        self._denied.add(name)
        return name

    def set_quota(self, vcpus: int) -> None:
        self.account.vcpu_quota = vcpus

    def fill(self, region: str, *, all_zones: bool) -> None:
        assert all_zones
        self.account.full.add(region)

    def empty(self) -> None:
        self.account.full.clear()

    def unknown_id(self, instance: Instance) -> str:
        return "i-ffffffff"

    def end_by_hand(self, instance: Instance) -> None:
        self.account.end(instance.cloud_id, "somebody has ended it")

    def firewall(self, region: str) -> set[Ingress]:
        found = [rules for (its, _), (_, rules) in self.account.firewalls.items() if its == region]
        admitted = [rules for (its, _), rules in self.account.admitted.items() if its == region]
        return set().union(*found, *admitted)

    def name_of(self, resource: FleetResource) -> str:
        return resource.kind

    def launches(self) -> int:
        return len(self.account.instances)

    def leftovers(self) -> dict[str, list[str]]:
        alive = [one.cloud_id for one in self.account.alive()]
        firewalls = [region for region, _ in self.account.firewalls]
        found = {"instances": alive, "firewalls": firewalls}
        return {kind: names for kind, names in found.items() if names}


@contextmanager
def memory_harness() -> Iterator[MemoryHarness]:
    yield MemoryHarness()
