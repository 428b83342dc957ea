"""Quotas and what is in use of them."""

from __future__ import annotations

from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import REGION, X86_TYPE, a_request, prepared

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota


def test_the_quota_and_the_vcpus_that_run(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    harness.set_quota_of(REGION, 32)
    cloud.launch(a_request())
    ended = cloud.launch(a_request(instance=f"{REGION}/1", instance_type=X86_TYPE))
    harness.run_theirs("t3.micro", "g5.xlarge")
    assert cloud.quotas([REGION]) == (RegionQuota(REGION, "L-1216C47A", 32, 2 + 4 + 2),)
    cloud.terminate([ended])
    assert cloud.quotas([REGION])[0].free_vcpus == 28


def test_spot_instances_have_a_quota_of_their_own(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws(spot_relays=True))
    harness.set_spot_quota(8)
    cloud.launch(a_request())
    on_demand, spot = cloud.quotas([REGION])
    assert (on_demand.name, on_demand.used_vcpus) == ("L-1216C47A", 0)
    assert spot == RegionQuota(REGION, "L-34B43A08", 8, 2, of_relays=True)
    # Relays take nothing of it, nor sources and sinks of the other.
    assert on_demand.of_relays is False


def test_a_region_that_tells_no_quota_has_none(harness: AwsHarness) -> None:
    harness.ec2.fail("GetServiceQuota", "NoSuchResourceException")
    (quota,) = harness.aws().quotas([REGION])
    assert (quota.vcpus, quota.free_vcpus) == (None, None)


def test_a_report_has_on_demand_and_spot_instances(harness: AwsHarness) -> None:
    harness.set_quota_of(REGION, 5)
    harness.set_spot_quota(8)
    cloud = prepared(harness.aws())
    cloud.launch(a_request())
    on_demand, spot = cloud.quota_uses([REGION])
    words = "instances of standard families"
    assert on_demand == QuotaUse(REGION, "L-1216C47A", f"vCPUs of on-demand {words}", 5, 2)
    assert spot == QuotaUse(REGION, "L-34B43A08", f"vCPUs of spot {words}", 8, 0)
    assert (on_demand.free, spot.free) == (3, 8)
