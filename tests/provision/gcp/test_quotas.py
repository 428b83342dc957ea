"""Quotas of vCPUs."""

from __future__ import annotations

from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import REGION, a_request, prepared

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota


def test_regions_tell_their_quotas_and_what_is_in_use(harness: GcpHarness) -> None:
    harness.gce.conditions.quotas |= {
        ("us-central1", "N2_CPUS"): 24.0,
        ("us-central1", "C3_CPUS"): 8.0,
        ("", "CPUS_ALL_REGIONS"): 32.0,
    }
    cloud = prepared(harness.gcp())
    cloud.launch(a_request())
    before = len(harness.gce.calls)
    assert set(cloud.quotas([REGION])) == {
        RegionQuota(REGION, "N2_CPUS", vcpus=24, used_vcpus=4, series="n2-"),
        RegionQuota(REGION, "C3_CPUS", vcpus=8, series="c3-"),
        RegionQuota(REGION, "T2A_CPUS", vcpus=1000, series="t2a-"),
        RegionQuota(REGION, "CPUS_ALL_REGIONS", vcpus=32, used_vcpus=4),
    }
    assert len(harness.gce.calls) - before == 2


def test_spot_instances_have_a_quota_of_their_own(harness: GcpHarness) -> None:
    harness.gce.conditions.quotas["us-central1", "PREEMPTIBLE_CPUS"] = 16.0
    cloud = prepared(harness.gcp(spot_relays=True))
    cloud.launch(a_request())
    found = {one.name: (one.vcpus, one.used_vcpus, one.of_relays) for one in cloud.quotas([REGION])}
    assert found["PREEMPTIBLE_CPUS"] == (16, 4, True)
    assert found["N2_CPUS"] == (1000, 0, False)


def test_without_a_quota_of_their_own_spot_instances_have_none(harness: GcpHarness) -> None:
    found = {one.name: one.of_relays for one in harness.gcp(spot_relays=True).quotas([REGION])}
    assert "PREEMPTIBLE_CPUS" not in found
    assert found["N2_CPUS"] is None


def test_a_report_has_families_spot_instances_and_addresses(harness: GcpHarness) -> None:
    harness.gce.conditions.quotas |= {
        ("us-central1", "N2_CPUS"): 24.0,
        ("us-central1", "IN_USE_ADDRESSES"): 8.0,
        ("", "CPUS_ALL_REGIONS"): 32.0,
    }
    cloud = prepared(harness.gcp())
    cloud.launch(a_request())
    assert set(cloud.quota_uses([REGION])) == {
        QuotaUse("gcp", "CPUS_ALL_REGIONS", "vCPUs of all regions together", 32, 4),
        QuotaUse(REGION, "N2_CPUS", "vCPUs of N2", 24, 4),
        QuotaUse(REGION, "C3_CPUS", "vCPUs of C3", 1000, 0),
        QuotaUse(REGION, "T2A_CPUS", "vCPUs of T2A", 1000, 0),
        QuotaUse(REGION, "PREEMPTIBLE_CPUS", "vCPUs of spot instances", 0, 0),
        QuotaUse(REGION, "IN_USE_ADDRESSES", "external addresses in use", 8, 1),
    }


def test_no_region_asks_nothing(harness: GcpHarness) -> None:
    assert harness.gcp().quotas([]) == ()
    assert harness.gce.calls == []
