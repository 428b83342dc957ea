"""What crashed workers leave in three clouds is swept, and nothing else. No machine boots.

Catalogue of faults, 35 and 42.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import MortalCloud, silent_boot
from tests.provision.fleet.harness import Killed
from tests.provision.samples import SECRET, make_plan

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.security.authority import Authority
from strict_clouds.arm import SUBSCRIPTION
from strict_clouds.gce import PROJECT

SEED: Final = 161803398
#: Verbs of clouds until a fleet is launched, about.
VERBS: Final = 20
#: Verbs until it is gone, about.
VERBS_OF_TEARDOWN: Final = 12

TYPES: Final = {
    "aws:eu-west-3": "c7gn.large",
    "azure:westeurope": "Standard_D4s_v5",
    "gcp:us-central1": "n2-standard-4",
}


@dataclass
class Sites:
    """Strict fakes of three clouds."""

    clouds: Callable[[Clock], list[Any]]
    leftovers: Callable[[], dict[str, dict[str, list[str]]]]
    clock: Clock

    def provisioner(self, die: Callable[[str], None] = lambda verb: None) -> InstanceProvisioner:
        clouds = Clouds([MortalCloud(cloud, die) for cloud in self.clouds(self.clock)], self.clock)
        options = InstanceOptions(("203.0.113.7/32",), processes_per_instance=1)
        return InstanceProvisioner(FleetContext(clouds, silent_boot(), options, self.clock))

    def crash(self, key: str, moment: int, deployment: str = "test") -> None:
        """A worker brings a fleet up and is killed at its call `moment`."""
        plan = make_plan([(tuple(TYPES), 2.0)], dict.fromkeys(TYPES, 1))
        groups = {region: InstanceGroup(kind, 1) for region, kind in TYPES.items()}
        spec = FleetSpec(key, 0, deployment, replace(plan, instances=groups))
        try:
            self.provisioner(killed_at(moment)).ensure(spec, Authority(SECRET, key))
        except Killed:
            return
        raise AssertionError("it was not killed")

    def crash_in_teardown(self, key: str, moment: int) -> None:
        """A worker ends a whole fleet and is killed at its call `moment`."""
        self.crash(key, 2 * VERBS)
        with pytest.raises(Killed):
            self.provisioner(killed_at(moment)).destroy(key)


def killed_at(moment: int) -> Callable[[str], None]:
    """Ends a worker at a call of a cloud's verbs, and all later calls of its other threads."""
    lock, count = threading.Lock(), 0

    def die(_: str) -> None:
        nonlocal count
        with lock:
            count += 1
            if count >= moment:
                raise Killed

    return die


@contextmanager
def three_clouds(clock: Clock) -> Iterator[Sites]:
    aws_region, azure_region, gcp_region = TYPES
    with open_ec2(deployments=("other", "test")) as ec2, open_arm() as arm, open_gce() as gce:
        gce.conditions.now_s = time.time()
        for conditions in (ec2.conditions, arm.conditions, gce.conditions):
            conditions.vcpu_quota = 1000

        def clouds(clock: Clock) -> list[Any]:
            aws = AwsOptions(endpoint_url=ec2.url, regions=(aws_region,))
            azure = AzureOptions(SUBSCRIPTION, endpoint_url=arm.url, regions=(azure_region,))
            gcp = GcpOptions(PROJECT, endpoint_url=gce.url, regions=(gcp_region,))
            return [
                AwsCloud(aws, clock=clock),
                AzureCloud(azure, clock=clock),
                GcpCloud(gcp, clock=clock),
            ]

        def leftovers() -> dict[str, dict[str, list[str]]]:
            fakes: dict[str, Any] = {"aws": ec2, "azure": arm, "gcp": gce}
            return {name: left for name, fake in fakes.items() if (left := fake.leftovers())}

        yield Sites(clouds, leftovers, clock)


@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.long)])
def test_crashed_runs_are_swept_and_living_fleets_are_kept(
    runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    rng = random.Random(SEED)
    clock = ManualClock(float(int(time.time())))
    with three_clouds(clock.clock) as sites:
        crashed = [f"{rng.getrandbits(128):032x}" for _ in range(runs)]
        for number, key in enumerate(crashed):
            if number % 3 == 2:
                sites.crash_in_teardown(key, rng.randrange(1, VERBS_OF_TEARDOWN))
            else:
                sites.crash(key, rng.randrange(2, VERBS))
        before = sites.leftovers()
        print(f"seed {SEED}: {before}")
        assert before.keys() == {"aws", "azure", "gcp"}
        sites.crash("ff" * 16, 2 * VERBS, deployment="other")
        clock.advance(7200.0)
        sites.crash("ee" * 16, 2 * VERBS)
        report = sites.provisioner().sweep("test", older_than_s=3600.0)
        assert not [orphan.error for orphan in report.orphans if orphan.error]
        assert {orphan.key for orphan in report.orphans} <= set(crashed)
        assert report.kept == ("ee" * 16,)
        for key in ("ee" * 16, "ff" * 16):
            assert len(sites.provisioner().describe(key)) == 3
            assert len(sites.provisioner().destroy(key)) == 3
        assert sites.leftovers() == {}
