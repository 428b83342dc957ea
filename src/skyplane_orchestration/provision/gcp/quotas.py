"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.gcp.options import region_tag

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: Quota -> series of machine types that count against it. Google tells no quotas of newer series.
_SERIES: Final = {
    "CPUS": ("e2-", "f1-", "g1-", "n1-"),
    "E2_CPUS": ("e2-",),
    "N2_CPUS": ("n2-",),
    "N2D_CPUS": ("n2d-",),
    "C2_CPUS": ("c2-",),
    "C2D_CPUS": ("c2d-",),
    "C3_CPUS": ("c3-",),
    "T2A_CPUS": ("t2a-",),
    "T2D_CPUS": ("t2d-",),
}
_SPOT: Final = "PREEMPTIBLE_CPUS"
#: Of the whole project. Each region may have all that is free of it.
_ALL_REGIONS: Final = "CPUS_ALL_REGIONS"
_ADDRESSES: Final = "IN_USE_ADDRESSES"
_EVERYWHERE: Final = "gcp"


def only_series(metric: str) -> str:
    """The series of machine types that a quota limits; empty for several, and for unknown ones.

    Args:
        metric: `compute.googleapis.com/n2_cpus`.
    """
    series = _SERIES.get(metric.rpartition("/")[2].upper(), ())
    return series[0] if len(series) == 1 else ""


def quota_uses(api: GcpApi, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
    """All that Google tells of them, and that of all regions once. Two calls."""
    project, rows = _rows(api)
    words = {
        "CPUS": "vCPUs of E2, F1, G1 and N1",
        **{metric: f"vCPUs of {metric.removesuffix('_CPUS')}" for metric in list(_SERIES)[1:]},
        _SPOT: "vCPUs of spot instances",
        _ADDRESSES: "external addresses in use",
    }
    everywhere = _uses(_EVERYWHERE, project, {_ALL_REGIONS: "vCPUs of all regions together"})
    return (
        *everywhere,
        *(
            use
            for region in regions
            if region in rows
            for use in _uses(region, rows[region], words)
        ),
    )


def _uses(region: str, row: Any, words: Mapping[str, str]) -> Iterator[QuotaUse]:
    told = {quota.metric: quota for quota in row.quotas}
    for metric, what in words.items():
        if quota := told.get(metric):
            yield QuotaUse(region, metric, what, int(quota.limit), int(quota.usage))


def region_quotas(
    api: GcpApi, regions: Sequence[str], *, with_spot: bool
) -> tuple[RegionQuota, ...]:
    """The quotas of each region, and the one that all regions share, for each. Two calls."""
    if not regions:
        return ()
    project, rows = _rows(api)
    return tuple(
        quota
        for region in regions
        if region in rows
        for quota in (
            *_of_region(region, rows[region], with_spot=with_spot),
            *_named(region, project, _ALL_REGIONS),
        )
    )


def _rows(api: GcpApi) -> tuple[Any, dict[str, Any]]:
    """The project, and its regions by tag."""
    what = "reading quotas"
    project = api.call("projects.get", {}, what=what)
    rows = {
        region_tag(row.name): row
        for page in api.pages("regions.list", {}, what=what)
        for row in page.items
    }
    return project, rows


def _of_region(region: str, row: Any, *, with_spot: bool) -> Iterator[RegionQuota]:
    for metric, series in _SERIES.items():
        for one in series:
            yield from _named(region, row, metric, one)
    if with_spot:
        # Without a quota of their own, spot instances count against those of their series.
        yield from (quota for quota in _named(region, row, _SPOT) if quota.vcpus)


def _named(region: str, row: Any, metric: str, series: str = "") -> Iterator[RegionQuota]:
    """The quota of a region's or a project's row; nothing if Google does not tell it."""
    for quota in row.quotas:
        if quota.metric == metric:
            yield RegionQuota(
                region,
                metric,
                vcpus=int(quota.limit),
                used_vcpus=int(quota.usage),
                series=series,
            )
