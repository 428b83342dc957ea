"""The cost and the throughput of a transfer, per edge and in total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from skyplane_gateway.journal.totals import Totals
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import CostOutcome, EdgeOutcome, TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.units import bytes_to_gb, gbps_of, usd_per_hour_to_usd_per_s

#: In a plan of mid-transfer, what was spent before it. Costs of bytes and instances have it too.
SPENT: Final = "before this plan"


def edge_outcomes(
    fleet: Fleet, delivered_bytes: Mapping[int, int], seconds: float
) -> tuple[EdgeOutcome, ...]:
    """Planned against achieved per edge, from the payload that each route delivered."""
    sent: dict[tuple[str, str], int] = {}
    for route in fleet.routes:
        regions = [fleet.gateway(node).region for node in route["nodes"]]
        for hop in pairwise(regions):
            sent[hop] = sent.get(hop, 0) + delivered_bytes.get(int(route["number"]), 0)
    probes = {(one.src, one.dst): one for one in fleet.probes if one.kind == "probed"}
    return tuple(
        EdgeOutcome(
            src=edge.src,
            dst=edge.dst,
            planned_gbps=edge.flow_gbps,
            achieved_gbps=rate_gbps(size, seconds),
            sent_bytes=size,
            modelled_gbps=edge.capacity_gbps if probe is None else probe.modelled_gbps,
            probed_gbps=None if probe is None else probe.gbps / probe.instances,
        )
        for edge in fleet.plan.edges
        for size in (sent.get((edge.src, edge.dst), 0),)
        for probe in (probes.get((edge.src, edge.dst)),)
    )


def rate_gbps(size_bytes: int, seconds: float) -> float:
    return gbps_of(size_bytes, seconds) if seconds > 0 else 0.0


def earlier_cost(fleet: Fleet, totals: Totals) -> tuple[CostOutcome, int]:
    """What earlier tries cost at this plan's prices, and the bytes on hops that it lacks.

    Journals contain neither prices nor fleets. The cost leaves out the time in which earlier
    fleets came up, and requests: the plan has one sum of requests for the whole job.
    """
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in fleet.plan.edges}
    known = [row for row in totals.sent if (row.src, row.dst) in prices]
    cost = CostOutcome(
        egress_usd=sum(bytes_to_gb(row.size_bytes) * prices[row.src, row.dst] for row in known),
        instance_usd=usd_per_s(fleet.plan) * totals.seconds,
        request_usd=0.0,
    )
    return cost, sum(row.size_bytes for row in totals.sent) - sum(row.size_bytes for row in known)


def usd_per_s(plan: TransferPlan) -> float:
    """The price of all instances of a plan."""
    return sum(
        group.count * usd_per_hour_to_usd_per_s(group.usd_per_hour)
        for group in plan.instances.values()
    )


def probe_usd(fleet: Fleet) -> float:
    """Egress of what was sent to measure the fleet."""
    return sum(one.usd for one in fleet.probes)


def cost_of(fleet: Fleet, status: TransferStatus, *, is_first: bool) -> CostOutcome:
    """What one epoch has cost at the plan's prices.

    Args:
        is_first: the fleet came up for it, so that it pays for that time and for the probe.
    """
    plan = fleet.plan
    up_s = fleet.provision_s if is_first else 0.0
    probes_usd = probe_usd(fleet) if is_first else 0.0
    edges = edge_outcomes(fleet, status.delivered_bytes, status.seconds)
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in plan.edges}
    cost = CostOutcome(
        egress_usd=probes_usd
        + sum(bytes_to_gb(edge.sent_bytes) * prices[edge.src, edge.dst] for edge in edges),
        instance_usd=usd_per_s(fleet.plan) * (status.seconds + up_s),
        request_usd=(plan.cost.request_usd or 0.0) if status.copied else 0.0,
    )
    return with_other_items(cost, plan, status.copied_bytes - status.copied_earlier_bytes)


def with_other_items(cost: CostOutcome, plan: TransferPlan, copied_bytes: int) -> CostOutcome:
    """The cost with the other items of a plan, which has none without a volume.

    Packet headers follow the egress, retrieval the copied bytes, and key requests the requests.
    The rest is billed by the hour and follows the instances.
    """
    from skyplane_orchestration.planner.pricing.other_items import HEADERS, KEYS, RETRIEVAL

    planned = plan.cost
    hours = (planned.instance_usd, planned.boot_usd, planned.minimum_billing_usd)
    by_hour = _share(cost.instance_usd, sum(usd or 0.0 for usd in hours))
    shares = {
        HEADERS: _share(cost.egress_usd, planned.egress_usd),
        RETRIEVAL: _share(bytes_to_gb(copied_bytes), plan.volume_gb),
        KEYS: _share(cost.request_usd, planned.request_usd),
    }
    items = {item: usd for item, usd in planned.other_usd.items() if item != SPENT}
    items = {item: usd * shares.get(item, by_hour) for item, usd in items.items()}
    return replace(cost, other_usd=items)


def _share(actual: float, planned: float | None) -> float:
    return actual / planned if planned else 0.0


def own_costs(done: Sequence[tuple[Fleet, TransferResult]]) -> list[TransferResult]:
    """Results of transfers that ran one after another, with costs that add up.

    As a transfer ends, its result counts the fleet from its launch, and the plan's requests for
    all of them. A transfer that found the fleet there pays from the end of the one before it, and
    requests by its copied objects.

    Args:
        done: in their order, each with the fleet that it ended on.
    """
    copied = sum(result.copied for _, result in done)
    paid_usd: dict[str, float] = {}
    made = []
    for fleet, result in done:
        before_usd = paid_usd.get(fleet.key, 0.0)
        share = result.copied / copied if copied else 0.0
        # The first transfer pays for the probe.
        probes_usd = probe_usd(fleet) if fleet.key in paid_usd else 0.0
        own, own_try = (
            with_other_items(
                replace(
                    one.cost,
                    egress_usd=max(0.0, one.cost.egress_usd - probes_usd),
                    instance_usd=max(0.0, one.cost.instance_usd - before_usd),
                    request_usd=one.cost.request_usd * share,
                ),
                fleet.plan,
                one.copied_bytes,
            )
            for one in (result, result.this_try)
        )
        this_try = replace(result.this_try, cost=own_try)
        made.append(replace(result, cost=own, this_try=this_try))
        # Gateways without instances count the time in which they came up, each time.
        came_up_usd = usd_per_s(fleet.plan) * fleet.provision_s
        paid_usd[fleet.key] = result.cost.instance_usd if fleet.instances else came_up_usd
    return made
