"""Quotas of Azure."""

from __future__ import annotations

from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import REGION, a_request, prepared

from skyplane_orchestration.model.region_quota import RegionQuota


def test_the_vcpus_of_a_region_are_read(harness: AzureHarness) -> None:
    harness.arm.conditions.quotas["westeurope", "cores"] = 10
    cloud = prepared(harness.azure())
    cloud.launch(a_request())
    assert cloud.quotas([REGION]) == (RegionQuota(REGION, "cores", vcpus=10, used_vcpus=4),)


def test_spot_instances_have_a_quota_of_their_own(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure(spot_relays=True))
    cloud.launch(a_request())
    assert cloud.quotas([REGION]) == (
        RegionQuota(REGION, "cores", vcpus=64, used_vcpus=0),
        RegionQuota(REGION, "lowPriorityCores", vcpus=64, used_vcpus=4),
    )
