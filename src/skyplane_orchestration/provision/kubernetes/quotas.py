"""What the ResourceQuotas of a namespace leave for Pods of gateways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion
from skyplane_orchestration.units import BYTES_PER_GIB

_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([EPTGMk]i?|Ki|[munpf]|[eE][+-]?[0-9]+)?\Z")
_DECIMAL: Final = {
    **{"f": -15, "p": -12, "n": -9, "u": -6, "m": -3},
    **{"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18},
}
#: Resource -> the names of its number in quotas.
_COUNTS: Final = {
    "jobs": ("count/jobs.batch",),
    "pods": ("pods", "count/pods"),
    "secrets": ("secrets", "count/secrets"),
    "services": ("services", "count/services", "services.loadbalancers"),
}


def quantity(text: str) -> float:
    """A number of the API: `500m`, `1.5Gi`, `1e3`."""
    found = _QUANTITY.match(text)
    if found is None:
        return 0.0
    number, suffix = float(found[1]), found[2] or ""
    if suffix.endswith("i"):
        return number * 1024.0 ** ("KMGTPE".index(suffix[0]) + 1)
    if suffix[1:]:
        return float(number * 10.0 ** int(suffix[1:]))
    return float(number * 10.0 ** _DECIMAL.get(suffix, 0))


def _needs(place: ClusterRegion, *resources: str) -> dict[str, float]:
    """What these of one instance count for, by the names in quotas."""
    found = {name: 1.0 for one in resources for name in _COUNTS[one]}
    if "pods" in resources:
        memory = place.memory_gib * BYTES_PER_GIB
        found |= dict.fromkeys(("cpu", "requests.cpu", "limits.cpu"), place.cpu)
        found |= dict.fromkeys(("memory", "requests.memory", "limits.memory"), memory)
    return found


def _limits(quotas: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, float, float]]:
    """(name of a quota, resource, its limit, the used amount)."""
    for item in quotas:
        status = item.get("status", {})
        used = status.get("used") or {}
        for resource, limit in (status.get("hard") or item["spec"].get("hard") or {}).items():
            name = f"ResourceQuota {item['metadata']['name']} ({resource})"
            yield name, resource, quantity(limit), quantity(used.get(resource, "0"))


def instances_left(
    region: str, place: ClusterRegion, quotas: Iterable[Mapping[str, Any]]
) -> Iterator[RegionQuota]:
    """How many instances of a fleet the quotas allow now."""
    needs = _needs(place, "jobs", "pods", "secrets", *["services"] * place.load_balancer)
    for name, resource, limit, used in _limits(quotas):
        if need := needs.get(resource):
            left = max(0, int((limit - used) / need + 1e-9))
            yield RegionQuota(region, f"{name} of namespace {place.namespace}", instances=left)


def exhausted(place: ClusterRegion, quotas: Iterable[Mapping[str, Any]], resource: str) -> str:
    """The first quota without room for one more of an instance's `jobs`, ...; empty if none is."""
    needs = _needs(place, resource)
    for name, counted, limit, used in _limits(quotas):
        if counted in needs and used + needs[counted] > limit * (1 + 1e-9):
            return f"{name} of namespace {place.namespace}"
    return ""


def uses_of(region: str, quotas: Sequence[Mapping[str, Any]]) -> Iterator[QuotaUse]:
    """All quotas of a namespace, rounded down; one row that says so if it has none."""
    if not quotas:
        yield QuotaUse(region, "ResourceQuota", "the namespace has none", None, 0)
    for name, resource, limit, used in _limits(quotas):
        yield QuotaUse(region, name, resource, int(limit), int(used))
