"""What a plan costs, item by item, and how long its gateways take to come up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.plan import PlanCost
from skyplane_orchestration.planner.decode import Overlay
from skyplane_orchestration.units import (
    gb_to_bytes,
    mib_to_bytes,
    usd_per_gbit_to_usd_per_gb,
    usd_per_hour_to_usd_per_s,
)

#: Estimated seconds from the first API call until the gateways of a cloud answer: boot
#: (EC2 about 30 s, GCE 20 to 40 s, Azure 40 to 90 s) plus fetching and starting the gateway.
#: Regions come up side by side, so a plan waits for its slowest cloud.
PROVISION_S: Mapping[str, float] = {"aws": 75.0, "gcp": 75.0, "azure": 120.0, "local": 2.0}

REQUESTS_PER_PRICE = 1000
LISTED_PER_REQUEST = 1000
_MULTIPART_EXTRA_WRITES = 2


def provision_s(regions: Iterable[str]) -> float:
    """Estimated seconds until gateways in all of these regions answer."""
    return max(PROVISION_S[tag.partition(":")[0]] for tag in regions)


def egress_usd_per_gb(grid: Grid, overlay: Overlay) -> float:
    """Egress of all edges per GB that arrives; a relayed GB pays at every hop."""
    return sum(
        flow / overlay.throughput_gbps * grid.egress_price(*edge)
        for edge, flow in overlay.flows.items()
    )


def instance_usd_per_gb(overlay: Overlay, types: Mapping[str, InstanceType]) -> float:
    """Instances per GB, while bytes move (4a): without boot time or minimum billing."""
    usd_per_s = sum(
        count * usd_per_hour_to_usd_per_s(types[tag].usd_per_hour)
        for tag, count in overlay.instances.items()
    )
    return usd_per_gbit_to_usd_per_gb(usd_per_s / overlay.throughput_gbps)


def request_usd(
    grid: Grid, src: str, dst: str, objects: int, volume_gb: float | None, chunk_mib: int
) -> float:
    """Reads at the source, writes at the destination, a listing of both.

    An object above one chunk is read in ranges and written in parts; the parts of an
    average object are taken for all. Places without a cloud charge nothing.
    """
    parts = 1
    if volume_gb is not None and objects:
        parts = max(1, math.ceil(gb_to_bytes(volume_gb) / objects / mib_to_bytes(chunk_mib)))
    writes = parts if parts == 1 else parts + _MULTIPART_EXTRA_WRITES
    listings = math.ceil(objects / LISTED_PER_REQUEST)
    total = 0.0
    for tag, verb, count in (
        (src, "read", objects * parts),
        (src, "list", listings),
        (dst, "write", objects * writes),
        (dst, "list", listings),
    ):
        prices = grid.request_prices(tag.partition(":")[0])
        total += count * prices.get(verb, 0.0) / REQUESTS_PER_PRICE
    return total


def itemised(
    egress_per_gb: float,
    instance_per_gb: float,
    volume_gb: float | None,
    requests_usd: float | None,
) -> PlanCost:
    """The cost of a plan; sums in USD only when the volume is known."""
    per_gb = egress_per_gb + instance_per_gb
    if volume_gb is None:
        return PlanCost(None, None, requests_usd, None, per_gb)
    return PlanCost(
        egress_usd=egress_per_gb * volume_gb,
        instance_usd=instance_per_gb * volume_gb,
        request_usd=requests_usd,
        total_usd=per_gb * volume_gb + (requests_usd or 0.0),
        usd_per_gb=per_gb,
    )
