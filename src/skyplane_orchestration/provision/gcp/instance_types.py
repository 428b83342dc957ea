"""Machine types: their vCPUs, architecture and zones, and the quotas that they count against.

Google is asked once for each type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.launching import zones_to_try
from skyplane_orchestration.provision.gcp.options import region_of_zone, region_tag

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: Series whose instances can have no disk of the older kind.
_HYPERDISK_SERIES: Final = frozenset({"c4", "c4a", "c4d", "h4d", "m4", "n4", "n4a", "n4d", "x4"})


@dataclass(frozen=True, slots=True)
class MachineType:
    """Of a machine type in a region: vCPUs, `arm64` or `x86_64`, and the zones that have it."""

    vcpus: int
    architecture: str
    zones: tuple[str, ...]


class MachineTypes:
    """Facts of machine types. Threads may share it."""

    def __init__(self, api: GcpApi) -> None:
        self._api = api
        self._options = api.options
        self._known: AnswerCache[str, dict[str, MachineType]] = AnswerCache()

    def of(self, region: str, instance_type: str) -> MachineType:
        """Raises InstanceTypeNotOffered."""
        known = self._known.get(instance_type, lambda: self._ask(instance_type))
        if region not in known:
            raise InstanceTypeNotOffered.of(region, instance_type)
        return known[region]

    def zones(self, region: str, instance_type: str) -> tuple[str, ...]:
        """The zones to try, in order: every worker tries them in the same one.

        Raises InstanceTypeNotOffered, also if only other zones than ours have the type.
        """
        offered = self.of(region, instance_type).zones
        return zones_to_try("gcp", self._options.zones, region, instance_type, offered)

    def disk_type(self, instance_type: str) -> str:
        """The type of a boot disk."""
        if self._options.disk_type:
            return self._options.disk_type
        is_new = instance_type.partition("-")[0] in _HYPERDISK_SERIES
        return "hyperdisk-balanced" if is_new else "pd-balanced"

    def image(self, region: str, instance_type: str) -> str:
        """The image of a boot disk. Raises ConfigurationInvalid: there is none for the type."""
        architecture = self.of(region, instance_type).architecture
        return self._options.image_for("images", architecture, instance_type)

    def _ask(self, instance_type: str) -> dict[str, MachineType]:
        """Region tag -> facts, in one call for all zones of the project."""
        zones: dict[str, list[str]] = {}
        rows = {}
        for zone, row in self._api.in_zones(
            "machineTypes.aggregatedList",
            "machine_types",
            {"filter": f'name="{instance_type}"'},
            what=f"looking for the machine type {instance_type}",
            # A zone that does not answer launches nothing.
            regions=(),
        ):
            zones.setdefault(region_of_zone(zone), []).append(zone)
            rows[region_of_zone(zone)] = row
        facts = {}
        for region, offered in zones.items():
            is_arm = rows[region].architecture == "ARM64"
            facts[region] = MachineType(
                vcpus=rows[region].guest_cpus,
                architecture="arm64" if is_arm else "x86_64",
                zones=tuple(sorted(offered)),
            )
        return facts


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
#: Metric -> limit and use.
_Row = dict[str, tuple[int, int]]


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
    everywhere = ("gcp", project, {_ALL_REGIONS: "vCPUs of all regions together"})
    return tuple(
        QuotaUse(tag, metric, what, *row[metric])
        for tag, row, wanted in (everywhere, *((one, rows.get(one, {}), words) for one in regions))
        for metric, what in wanted.items()
        if metric in row
    )


def region_quotas(
    api: GcpApi, regions: Sequence[str], *, with_spot: bool
) -> tuple[RegionQuota, ...]:
    """The quotas of each region, and the one that all regions share, for each. Two calls."""
    if not regions:
        return ()
    project, rows = _rows(api)
    shared = {metric: found for metric, found in project.items() if metric == _ALL_REGIONS}
    return tuple(
        RegionQuota(region, metric, *row[metric], None, series, of_relays)
        for region in regions
        if region in rows
        for row in [rows[region] | shared]
        for metric, series, of_relays in _limits(row, with_spot=with_spot)
        if metric in row
    )


def _limits(row: _Row, *, with_spot: bool) -> Iterator[tuple[str, str, bool | None]]:
    """Metric, series of machine types, and whether it limits relays only; see `RegionQuota`."""
    # Without a quota of their own, spot instances count against those of their series.
    has_spot = with_spot and row.get(_SPOT, (0, 0))[0] > 0
    for metric, series in _SERIES.items():
        yield from ((metric, one, False if has_spot else None) for one in series)
    if has_spot:
        yield _SPOT, "", True
    yield _ALL_REGIONS, "", None


def _rows(api: GcpApi) -> tuple[_Row, dict[str, _Row]]:
    """Limit and use by metric: of the project, and of its regions by tag."""
    what = "reading quotas"
    project = api.call("projects.get", {}, what=what)
    pages = api.pages("regions.list", {}, what=what)
    regions = {region_tag(row.name): _row(row) for page in pages for row in page.items}
    return _row(project), regions


def _row(found: Any) -> _Row:
    return {quota.metric: (int(quota.limit), int(quota.usage)) for quota in found.quotas}
