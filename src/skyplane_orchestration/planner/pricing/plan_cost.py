"""The cost of an overlay, item by item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.plan import PlanCost
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.pricing.other_items import OtherItems, read_usd
from skyplane_orchestration.units import (
    gb_to_bytes,
    mib_to_bytes,
    usd_per_gbit_to_usd_per_gb,
    usd_per_hour_to_usd_per_s,
)

#: Clouds price this many requests, and a listing returns this many keys per request.
REQUESTS_PER_PRICE = 1000
LISTED_PER_REQUEST = 1000
#: Creating and completing a multipart upload are billed as writes.
_MULTIPART_EXTRA_WRITES = 2
#: Cloud -> parts that one request joins; gateways make larger parts there so that it suffices.
_JOINED_PARTS = {"gcp": 32}


def egress_usd_per_gb(grid: Grid, overlay: Overlay) -> float:
    """Egress of all edges per GB that arrives; a relayed GB pays at every hop."""
    return sum(
        flow / overlay.throughput_gbps * grid.egress_price(*edge)
        for edge, flow in overlay.flows.items()
    )


def request_usd(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    objects: int,
    volume_gb: float | None,
    part_mib: float | None,
    commit_writes: int = _MULTIPART_EXTRA_WRITES,
    *,
    whole_mib: float = 0.0,
) -> float:
    """Reads at the source, writes at each destination, and a listing of each; `local:` is free.

    Args:
        part_mib: an object larger than this is read in ranges and written in parts, by the size of
            an average object. None for whole objects.
        commit_writes: further writes of an object in parts.
        whole_mib: an object up to this size is not cut either.
    """
    average_bytes = 0.0
    if part_mib is not None and volume_gb is not None and objects:
        average_bytes = gb_to_bytes(volume_gb) / objects
    made = request_counts(
        objects, average_bytes, destinations, part_mib, commit_writes, whole_mib=whole_mib
    )
    total = 0.0
    for tag, verb, count in (
        (src, "read", made.reads),
        (src, "list", made.listings),
        *((dst, "write", count) for dst, count in made.writes.items()),
        *((dst, "list", made.listings) for dst in destinations),
    ):
        usd = grid.request_prices(tag.partition(":")[0]).get(verb, 0.0)
        total += count * (read_usd(grid, tag) if verb == "read" else usd) / REQUESTS_PER_PRICE
    return total


class RequestCounts(NamedTuple):
    """Requests of a job: reads at the source, writes by destination, listings at each end."""

    reads: int
    writes: Mapping[str, int]
    listings: int


def request_counts(
    objects: int,
    average_bytes: float,
    destinations: Sequence[str],
    part_mib: float | None,
    commit_writes: int = _MULTIPART_EXTRA_WRITES,
    *,
    whole_mib: float = 0.0,
) -> RequestCounts:
    """The requests for objects of an average size; other arguments as for `request_usd`."""
    parts = {dst: _parts(average_bytes, part_mib, whole_mib, dst) for dst in destinations}
    writes = {
        dst: objects * (n if n == 1 else n + commit_writes + _joins(n, dst))
        for dst, n in parts.items()
    }
    reads = objects * max(parts.values(), default=1)
    return RequestCounts(reads, writes, math.ceil(objects / LISTED_PER_REQUEST))


def _parts(average_bytes: float, part_mib: float | None, whole_mib: float, dst: str) -> int:
    """Requests that carry the bytes of an average object."""
    if part_mib is None or average_bytes <= mib_to_bytes(whole_mib):
        return 1
    part_bytes: float = mib_to_bytes(part_mib)
    if joined := _JOINED_PARTS.get(dst.partition(":")[0]):
        part_bytes = max(part_bytes, min(average_bytes / joined, mib_to_bytes(whole_mib)))
    return max(1, math.ceil(average_bytes / part_bytes))


def _joins(parts: int, dst: str) -> int:
    """Requests that join parts before the last one, which is counted as a commit."""
    joined, requests = _JOINED_PARTS.get(dst.partition(":")[0]), 0
    while joined and parts > joined:
        parts = math.ceil(parts / joined)
        requests += parts
    return requests


def itemised(
    egress_per_gb: float,
    overlay: Overlay,
    volume_gb: float | None,
    requests_usd: float | None,
    wait_s: float,
    transfer_s: float | None,
    other: OtherItems,
) -> PlanCost:
    """The cost of an overlay; sums in USD only when the volume is known.

    Args:
        egress_per_gb: USD per GB that arrives.
        requests_usd: price of all requests, None where not known.
        wait_s: seconds until the slowest gateway responds.
        transfer_s: seconds of moving; None without a volume.
        other: what the bill has beside egress, instances and requests.
    """
    prices = {
        tag: count * usd_per_hour_to_usd_per_s(overlay.types[tag].usd_per_hour)
        for tag, count in overlay.instances.items()
    }
    # As in (4a), without provisioning time and minimum billing.
    per_gbit = sum(prices.values()) / overlay.throughput_gbps
    per_gb = egress_per_gb + usd_per_gbit_to_usd_per_gb(per_gbit)
    if volume_gb is None or transfer_s is None:
        return PlanCost(None, None, requests_usd, None, per_gb)
    moving, boot, minimum = 0.0, 0.0, 0.0
    for tag, usd_per_s in prices.items():
        moving += usd_per_s * transfer_s
        boot += usd_per_s * wait_s
        minimum += usd_per_s * (
            instance_billing.billed_s(tag, transfer_s, wait_s) - wait_s - transfer_s
        )
    egress = egress_per_gb * volume_gb
    others = other.amounts(egress, overlay.instances, transfer_s, wait_s)
    known = (egress, moving, boot, minimum, requests_usd or 0.0, *others.values())
    return PlanCost(
        egress_usd=egress,
        instance_usd=moving,
        request_usd=requests_usd,
        total_usd=sum(known),
        usd_per_gb=per_gb,
        boot_usd=boot,
        minimum_billing_usd=max(minimum, 0.0),
        other_usd=others,
    )
