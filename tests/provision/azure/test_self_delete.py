"""A fleet of real gateways, on instances that boot the user data that Azure was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.clouds.fakes import open_arm
from tests.clouds.gateways import GATEWAY, IMAGE
from tests.provision.azure.harness import FOR_SELF_DELETE
from tests.provision.azure.test_launch import IDENTITY
from tests.provision.samples import SECRET, expire_leases, make_plan

from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.cloud_registry import parse_clouds
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import FleetSpec, FleetTimes
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.security.store_credentials import CredentialSources
from strict_clouds.arm import SUBSCRIPTION, StrictArm
from strict_clouds.arm_machines import SELF_DELETE
from strict_clouds.arm_state import FIREWALLS, NETWORKS
from strict_clouds.world import World

pytestmark = pytest.mark.e2e

SOURCE, SINK = "azure:westeurope", "azure:eastus"
KEY = "0123456789abcdef" * 2


def plan() -> TransferPlan:
    made = make_plan([((SOURCE, SINK), 5.0)], {SOURCE: 1, SINK: 1})
    instances = {region: InstanceGroup("Standard_D4s_v5", 1) for region in (SOURCE, SINK)}
    return replace(made, instances=instances)


def worker(arm: StrictArm, **options: str) -> InstanceProvisioner:
    document = {
        "image": IMAGE.image,
        "control_cidrs": ["127.0.0.1/32"],
        "processes_per_instance": 1,
        "ready_timeout_s": 60.0,
        "poll_s": 0.1,
        "azure": {
            "subscription_id": SUBSCRIPTION,
            "endpoint_url": arm.url,
            "regions": [SOURCE, SINK],
            **options,
        },
    }
    return parse_clouds(document).open(CredentialSources())


@pytest.mark.long
def test_an_instance_whose_gateways_end_is_billed_until_the_sweep(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world, open_arm(world) as arm:
        arm.conditions.operation_polls = 0
        spec = FleetSpec(KEY, 0, "test", plan(), FleetTimes(start_within_s=60.0))
        authority = Authority(SECRET, KEY)
        expire_leases(worker(arm).ensure(spec, authority), authority)
        for machine in world.machines:
            machine.wait_ended()
        assert worker(arm).describe(KEY) == ()
        assert len(arm.virtual_machines()) == 2
        report = worker(arm).sweep("test")
        assert [orphan.key for orphan in report.orphans] == [KEY]
        assert arm.leftovers() == {}


@pytest.mark.long
@pytest.mark.parametrize("identity", ["", IDENTITY])
def test_machines_that_may_delete_themselves_are_billed_no_longer_than_they_work(
    tmp_path: Path, identity: str
) -> None:
    """No sweep and no teardown, as after the death of everything of ours."""
    options = {"self_delete_role": SELF_DELETE, "managed_identity": identity}
    with World(tmp_path, GATEWAY) as world, open_arm(world, also=FOR_SELF_DELETE) as arm:
        arm.conditions.operation_polls = 0
        spec = FleetSpec(KEY, 0, "test", plan(), FleetTimes(start_within_s=60.0))
        authority = Authority(SECRET, KEY)
        expire_leases(worker(arm, **options).ensure(spec, authority), authority)
        for machine in world.machines:
            machine.wait_ended()
        assert arm.virtual_machines() == []
        assert all(one.ended_unix_s is not None for one in arm.usage.machines())
        # None of them has a price.
        free = {"groups", FIREWALLS, NETWORKS}
        assert set(arm.leftovers()) == free
        worker(arm).destroy(KEY)
        assert arm.leftovers() == {}
