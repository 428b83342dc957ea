"""Hosts for the conformance suite of clouds: their instances wait for an enrolment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tests.manual_clock import ManualClock
from tests.provision.conftest import SshHarness
from tests.provision.fleet.cloud_harness import (
    DISKS,
    FIREWALLS,
    FOREIGN,
    LOST_ANSWERS,
    NO_SUCH_TYPE,
    ORGANISATION_POLICY,
    PERMISSIONS,
    ZONES,
)
from tests.provision.samples import A, B
from tests.provision.situations import NO_CAPACITY, QUOTA, SLOW_VISIBILITY, THROTTLED_API

from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)

_IS_A_MACHINE = "a host is a machine that starts every process and shows it at once"
_HAS_NO_API = "a host has no API of an account, but a login"


class HostsHarness:
    """See `CloudHarness`."""

    region, other_region = A, B
    third_region = closed_region = ""
    instance_type = "process"
    vcpus = 1
    quota_name = ""
    lacks: Mapping[str, str] = {
        **dict.fromkeys((SLOW_VISIBILITY, QUOTA, NO_CAPACITY, ZONES, NO_SUCH_TYPE), _IS_A_MACHINE),
        **dict.fromkeys(
            (THROTTLED_API, LOST_ANSWERS, PERMISSIONS, ORGANISATION_POLICY), _HAS_NO_API
        ),
        FIREWALLS: "hosts have their own",
        DISKS: "an instance has a directory",
        FOREIGN: "the root of fleets is this library's own",
    }

    def __init__(self, ssh: SshHarness) -> None:
        self._ssh = ssh
        self.clock = ManualClock(time.time())

    def worker(self) -> Machines:
        """Its `terminate` waits: processes end in real time."""
        machines = self._ssh.provisioner()._machines
        begin = machines.terminate

        def terminate(instances: Sequence[Instance]) -> None:
            begin(instances)
            while any(self._ssh.processes_of(one.cloud_id) for one in instances):
                time.sleep(0.02)

        machines.terminate = terminate  # type: ignore[method-assign]
        return machines

    def hide_new(self, calls: int) -> None:
        """Nothing: see `lacks`."""

    def unknown_id(self, instance: Instance) -> str:
        return f"{instance.cloud_id}0"

    def end_by_hand(self, instance: Instance) -> None:
        self._ssh.end(instance.cloud_id)

    def firewall(self, region: str) -> set[Ingress]:
        raise AssertionError(FIREWALLS)

    def name_of(self, resource: FleetResource) -> str:
        return resource.kind

    def launches(self) -> int:
        return len(list(self._ssh.run_root.glob("host-*/*/*/tags.json")))

    def leftovers(self) -> dict[str, list[str]]:
        left = self._ssh.traces()
        return {"traces": left} if left else {}
