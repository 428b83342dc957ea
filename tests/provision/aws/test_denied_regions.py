"""A policy of the organisation denies a region that the account has enabled, or it is down."""

from __future__ import annotations

import logging
from functools import partial

import pytest
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import FLEET, REGION, REQUEST, prepared
from tests.provision.fleet.memory_cloud import MemoryAccount, StandInBoot
from tests.provision.samples import SECRET, make_plan

from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.fleet_instances import FleetInstances
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.parallel import answered
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.security.authority import Authority

OTHER = "aws:us-east-1"


def deny(harness: AwsHarness, *regions: str) -> None:
    harness.ec2.conditions.denied_regions |= {region.partition(":")[2] for region in regions}


def test_a_search_of_all_regions_passes_over_a_denied_one(
    harness: AwsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    launched = prepared(harness.aws()).launch(REQUEST)
    deny(harness, "aws:eu-south-2")
    cloud = harness.aws()
    regions = cloud.regions()
    with caplog.at_level(logging.WARNING):
        assert [one.cloud_id for one in cloud.describe(FLEET.fleet_key, regions)] == [
            launched.cloud_id
        ]
        assert len(cloud.leftovers(FLEET.fleet_key, regions)) == 1
        instances, resources = cloud.list_resources(FLEET.deployment, regions)
    assert (len(instances), len(resources)) == (1, 1)
    # Airflow, where another test has loaded it, shows more than warnings, and asyncio shows what
    # another test has left.
    (said,) = [
        one.message
        for one in caplog.records
        if one.levelno >= logging.WARNING and one.name.startswith("skyplane")
    ]
    assert "aws:eu-south-2" in said
    assert "regions of aws" in said


@pytest.mark.parametrize("denied", [(REGION,), (REGION, OTHER, "aws:eu-south-2")])
def test_the_regions_of_a_plan_are_never_passed_over(
    harness: AwsHarness, denied: tuple[str, ...]
) -> None:
    cloud = harness.aws()
    regions = cloud.regions() if len(denied) > 1 else [REGION, OTHER]
    deny(harness, *denied)
    for search in (cloud.describe, cloud.leftovers):
        with pytest.raises(CloudAccessDenied, match="regions of aws"):
            search(FLEET.fleet_key, regions)


def test_a_region_in_which_this_worker_has_a_fleet_is_never_passed_over(
    harness: AwsHarness,
) -> None:
    cloud = prepared(harness.aws())
    deny(harness, REGION)
    with pytest.raises(CloudAccessDenied, match=REGION):
        cloud.describe(FLEET.fleet_key, cloud.regions())


def test_a_region_that_the_setting_names_is_never_passed_over(harness: AwsHarness) -> None:
    cloud = harness.aws(regions=(REGION, OTHER))
    deny(harness, REGION)
    with pytest.raises(CloudAccessDenied, match=REGION):
        cloud.describe(FLEET.fleet_key, cloud.regions())


def test_plans_get_no_instance_in_a_denied_region(harness: AwsHarness) -> None:
    deny(harness, OTHER)
    found = {quota.region: quota.instances for quota in harness.aws().quotas([REGION, OTHER])}
    assert found == {REGION: None, OTHER: 0}


def test_instances_of_an_earlier_plan_end_in_an_account_with_a_denied_region(
    harness: AwsHarness,
) -> None:
    """The search left the regions of the plan out, so it did not pass over the denied one."""
    prepared(harness.aws()).launch(REQUEST)
    deny(harness, "aws:eu-south-2")
    cloud, key = harness.aws(), FLEET.fleet_key
    plan = make_plan([((OTHER, "aws:us-west-2"), 1.0)], {OTHER: 1, "aws:us-west-2": 1})
    spec = FleetSpec(key=key, generation=0, deployment=FLEET.deployment, plan=plan)
    options = InstanceOptions(control_cidrs=("203.0.113.7/32",))
    boot = StandInBoot(MemoryAccount())
    context = FleetContext(Clouds([cloud]), boot, options)
    names = {region: [f"{region}/0"] for region in plan.instances}
    FleetInstances(spec, names, Authority(SECRET, key), context).end_dropped()
    assert not [one for one in cloud.describe(key, [REGION]) if one.is_alive]


def test_a_region_that_does_not_answer_is_named(harness: AwsHarness) -> None:
    """So that the caller can do without it, also beside a denied one."""
    prepared(harness.aws()).launch(REQUEST)
    deny(harness, "aws:eu-south-2")
    cloud = harness.aws()
    regions = cloud.regions()
    harness.ec2.conditions.silent_regions.add("us-east-1")
    for search in (
        partial(cloud.describe, FLEET.fleet_key),
        partial(cloud.leftovers, FLEET.fleet_key),
        partial(cloud.list_resources, FLEET.deployment),
        cloud.quotas,
    ):
        with pytest.raises(CloudUnavailable) as caught:
            search(regions)
        assert caught.value.regions == (OTHER,)
        found, silent = answered(search, regions)
        assert list(silent) == [OTHER]
        assert REGION in str(found)
