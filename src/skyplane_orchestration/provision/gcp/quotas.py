"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.gcp.options import region_tag

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: The series of the machine types of plans: those of the shipped limits.
_METRICS: Final = ("N2_CPUS", "C3_CPUS")
_SPOT_METRIC: Final = "PREEMPTIBLE_CPUS"
#: Of the whole project.
_ALL_REGIONS: Final = "CPUS_ALL_REGIONS"


def region_quotas(
    api: GcpApi, regions: Sequence[str], *, with_spot: bool
) -> tuple[RegionQuota, ...]:
    """The quotas of each region, and the one that all regions share, for each. Two calls."""
    if not regions:
        return ()
    metrics = (*_METRICS, _SPOT_METRIC) if with_spot else _METRICS
    what = "reading quotas"
    project = _quotas(api.call("projects.get", {}, what=what), [_ALL_REGIONS])
    found = []
    for page in api.pages("regions.list", {}, what=what):
        for row in page.items:
            region = region_tag(row.name)
            if region in regions:
                for name, limit, used in (*_quotas(row, metrics), *project):
                    found.append(RegionQuota(region, name, vcpus=limit, used_vcpus=used))
    return tuple(found)


def _quotas(row: Any, metrics: Collection[str]) -> list[tuple[str, int, int]]:
    """Name, limit and use of a region's or a project's quotas."""
    return [
        (str(quota.metric), int(quota.limit), int(quota.usage))
        for quota in row.quotas
        if quota.metric in metrics
    ]
