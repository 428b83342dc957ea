"""Quotas of Azure."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import REGION, a_request, prepared

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.describe import PLANNED_TYPES


def test_the_vcpus_of_a_region_are_read(harness: AzureHarness) -> None:
    harness.arm.conditions.quotas["westeurope", "cores"] = 10
    cloud = prepared(harness.azure())
    cloud.launch(a_request())
    assert cloud.quotas([REGION]) == (RegionQuota(REGION, "cores", vcpus=10, used_vcpus=4),)


def test_spot_instances_have_a_quota_of_their_own(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure(spot_relays=True))
    cloud.launch(a_request())
    assert cloud.quotas([REGION]) == (
        RegionQuota(REGION, "cores", vcpus=64, used_vcpus=0, of_relays=False),
        RegionQuota(REGION, "lowPriorityCores", vcpus=64, used_vcpus=4, of_relays=True),
    )


def test_a_report_has_families_spot_instances_and_addresses(harness: AzureHarness) -> None:
    harness.arm.conditions.quotas |= {
        ("westeurope", "cores"): 10,
        ("westeurope", "standardDSv5Family"): 8,
        ("westeurope", "StandardSkuPublicIpAddresses"): 3,
    }
    cloud = prepared(harness.azure())
    cloud.launch(a_request())
    assert cloud.quota_uses([REGION]) == (
        QuotaUse(REGION, "cores", "Total Regional vCPUs", 10, 4),
        QuotaUse(REGION, "lowPriorityCores", "Total Regional Spot vCPUs", 64, 0),
        QuotaUse(REGION, "standardDSv5Family", "standardDSv5Family", 8, 4),
        QuotaUse(REGION, "standardDPLSv5Family", "standardDPLSv5Family", 64, 0),
        QuotaUse(REGION, "standardDv5Family", "standardDv5Family", 64, 0),
        QuotaUse(REGION, "StandardSkuPublicIpAddresses", "Standard Sku Public IP Addresses", 3, 1),
        QuotaUse(REGION, "PublicIPAddresses", "Public IP Addresses", 20, 1),
    )


def test_the_report_has_the_families_of_planned_types(repository: Path) -> None:
    with (repository / "grids/skyplane_grids/limits.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["cloud"] == "azure"]
    assert tuple(row["instance_type"] for row in rows) == PLANNED_TYPES
