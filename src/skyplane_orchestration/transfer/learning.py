"""What a finished transfer teaches about its edges, and the plans that read it.

The rate of an edge is that of the times in which bytes waited for it: the start, the tail, and
times in which a store was the limit are not in it. An edge counts if its paths were full for
`LEAST_S`, and not because of the hop after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import IN_PROCESS, LOCAL, Fleet, instance_of
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.rate_samples import (
    read_samples,
    read_sent_gb,
    write_samples,
    write_sent,
)
from skyplane_orchestration.transfer.actual_cost import edge_outcomes
from skyplane_orchestration.units import gbps_of

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.grids.learned import History
    from skyplane_orchestration.transfer.transfer_monitor import Monitor

log = logging.getLogger(__name__)

#: Least seconds in which all paths over an edge were full.
LEAST_S: Final = 10.0
#: Paths over an edge, and the hops after it, were full together if for this share of the time.
_TOGETHER: Final = 0.5

#: Gateway -> the rows of its routes, as in its status.
RouteRows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Hop:
    """One hop of one route, how long it was full, and whether it was the last that was full."""

    nodes: tuple[str, str]
    connections: int
    full_s: float
    full_bytes: int
    limits_route: bool


def achieved_rates(
    fleet: Fleet, rows: RouteRows, at_unix_s: float, *, even_shared: bool = False
) -> tuple[EdgeMeasurement, ...]:
    """The rates of the edges that were the bottleneck of their paths while the rows were counted.

    Without edges that share the limit of an instance with another one, by the plan; `even_shared`
    has these too.
    """
    by_edge: dict[tuple[str, str], list[_Hop]] = {}
    for hop in _hops(fleet, rows):
        src, dst = (fleet.gateway(node).region for node in hop.nodes)
        if src != dst:
            by_edge.setdefault((src, dst), []).append(hop)
    planned = {(edge.src, edge.dst): edge.capacity_gbps for edge in fleet.plan.edges}
    return tuple(
        EdgeMeasurement(
            *edge,
            gbps=sum(gbps_of(hop.full_bytes, hop.full_s) for hop in hops),
            connections=sum(hop.connections for hop in hops),
            instances=max(len({instance_of(hop.nodes[end]) for hop in hops}) for end in (0, 1)),
            seconds=max(hop.full_s for hop in hops),
            bytes=sum(hop.full_bytes for hop in hops),
            at_unix_s=at_unix_s,
            kind="achieved",
            modelled_gbps=planned.get(edge),
        )
        for edge, hops in by_edge.items()
        if _is_bottleneck(hops) and (even_shared or not _shares_an_instance(fleet.plan, edge))
    )


def _hops(fleet: Fleet, rows: RouteRows) -> Iterator[_Hop]:
    """The hops that carried bytes; one whose gateway does not answer was never full."""
    found = {(node, int(row["number"])): row for node, own in rows.items() for row in own}
    for route in fleet.routes:
        number = int(route["number"])
        of_route = [found.get((node, number), {}) for node in route["nodes"]]
        # A gateway of the previous release has no such field.
        full_s = [float(row.get("saturated_s", 0.0)) for row in of_route]
        for index, nodes in enumerate(pairwise(route["nodes"])):
            row = of_route[index]
            if row.get("frame_bytes", 1):
                yield _Hop(
                    nodes,
                    int(route["connections"][index]),
                    full_s[index],
                    int(row.get("saturated_bytes", 0)),
                    full_s[index] >= _TOGETHER * max(full_s)
                    and full_s[index + 1] < _TOGETHER * full_s[index],
                )


def _is_bottleneck(hops: Sequence[_Hop]) -> bool:
    longest_s = max(hop.full_s for hop in hops)
    return longest_s >= LEAST_S and all(
        hop.limits_route and hop.full_s >= _TOGETHER * longest_s for hop in hops
    )


def _shares_an_instance(plan: TransferPlan, edge: tuple[str, str]) -> bool:
    src, dst = edge
    out = sum(one.src == src for one in plan.edges)
    into = sum(one.dst == dst for one in plan.edges)
    return (out > 1 and f"egress_limit {src}" in plan.binding) or (
        into > 1 and f"ingress_limit {dst}" in plan.binding
    )


def learn(
    target: str,
    result: TransferResult,
    credentials: CredentialSources,
    *,
    include_local: bool = False,
) -> str:
    """Write the rates that a result has measured to a learned grid; why not, else empty.

    Args:
        include_local: also those of gateways that are processes of one machine.

    Raises StoreError or InvalidLocation.
    """
    if not result.measured:
        return "no edge was full, and limited by nothing else, for long enough"
    if result.gateways in (LOCAL, IN_PROCESS) and not include_local:
        return "its gateways were processes of one machine"
    kinds = sorted({one.kind for one in result.measured})
    # Each transfer of a fleet reports its probe, which so is the same file.
    by_kind = ([one for one in result.measured if one.kind == kind] for kind in kinds)
    is_new = [write_samples(target, samples, credentials) for samples in by_kind]
    return "" if any(is_new) else "its rates are there already"


def with_learned_rates(
    grid: Grid, target: str, credentials: CredentialSources, now_unix_s: float
) -> Grid:
    """The grid with what a learned grid has, which is read when a value by pair is first used.

    One that cannot be read changes nothing, and plans say so.
    """
    from skyplane_orchestration.grids.learned import with_learned

    def history() -> History:
        try:
            sent_gb = read_sent_gb(target, credentials, now_unix_s)
            return read_samples(target, credentials, now_unix_s=now_unix_s), sent_gb, ""
        except SkyplaneError as error:
            remark = f"planned without the learned grid, which cannot be read: {error.message}"
            log.warning("%s", remark)
            return (), {}, remark

    return with_learned(grid, history, now_unix_s)


def internet_bytes(fleet: Fleet, status: TransferStatus) -> dict[tuple[str, str], int]:
    """Payload of one epoch by edge, where its price falls with the volume of the month.

    Those are the edges from billed instances to another cloud, at the prices of the rules.
    """
    from skyplane_orchestration.grids import FROM_RULES
    from skyplane_orchestration.planner.pricing.instance_billing import cloud_of

    billed = {one.region for one in fleet.instances}
    sent = edge_outcomes(fleet, status.delivered_bytes, status.seconds)
    return {
        (edge.src, edge.dst): one.sent_bytes
        for edge, one in zip(fleet.plan.edges, sent, strict=True)
        if edge.price == FROM_RULES
        and edge.src in billed
        and cloud_of(edge.src) != cloud_of(edge.dst)
        and one.sent_bytes
    }


def record_sent(monitor: Monitor) -> None:
    """Write what an ended transfer has sent to the deployment's `learned_grid`, if it has one.

    What fails is a warning of the transfer.
    """
    context = monitor.context
    if context.learned_grid is None:
        return
    try:
        for epoch in monitor.budget.epochs.values():
            fleet, status, now_unix_s = epoch.fleet, epoch.status, context.clock.wall()
            # A rebuilt fleet counts epochs from one again.
            name = f"{status.transfer_key} {fleet.start_id} {status.epoch}"
            sent = internet_bytes(fleet, status)
            write_sent(context.learned_grid, name, sent, context.credentials, now_unix_s)
    except SkyplaneError as error:
        warning = f"what this transfer has sent is not in the learned grid: {error.message}"
        log.warning("%s", warning)
        monitor.warnings.append(warning)


def with_rates(monitor: Monitor, result: TransferResult) -> TransferResult:
    """The result of an ended transfer with the rates that its edges achieved, and drift said.

    Writes the rates to the deployment's `learned_grid`, if it has one; what fails is a warning.
    """
    job, context, fleet = monitor.request.job, monitor.context, monitor.fleet
    is_long = result.seconds >= LEAST_S and not monitor.is_abandoned
    if is_long and job.bytes_per_s is None:
        now_unix_s = context.clock.wall()
        rates = achieved_rates(fleet, monitor.control.route_rows(), now_unix_s)
        result = replace(result, measured=(*result.measured, *rates))
    if result.has_drifted:
        log.warning("transfer %s: %s", result.transfer_key, result.drift_text)
        result = replace(result, warnings=(*result.warnings, result.drift_text))
    if context.learned_grid is None:
        return result
    try:
        learn(context.learned_grid, result, context.credentials)
    except SkyplaneError as error:
        warning = f"the rates of this transfer are not in the learned grid: {error.message}"
        log.warning("%s", warning)
        return replace(result, warnings=(*result.warnings, warning))
    return result
