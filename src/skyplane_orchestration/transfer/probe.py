"""Measures the edges of a fleet before it carries a transfer, and plans again on the result.

A probe sends for some seconds over the planned edges, the direct path, and the paths over one of
the plan's relays. It stays inside the regions and the instances of the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import ProbeReport, Route
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    GatewayError,
    PlanInfeasible,
    ProvisionFailed,
    SkyplaneError,
)
from skyplane_orchestration.formatting import counted, throughput
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import (
    IN_PROCESS,
    LOCAL,
    Fleet,
    FleetInstance,
    GatewayHandle,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.control_sessions import topology_of
from skyplane_orchestration.provision.routes import Edge, edges_to_probe, probe_routes
from skyplane_orchestration.transfer.actual_cost import usd_per_s
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.fleet_sessions import FleetSessions
from skyplane_orchestration.transfer.measured_plan import ProbeCost, plan_measured
from skyplane_orchestration.units import bytes_to_gb, gbit_to_gb

log = logging.getLogger(__name__)

#: How long an edge is measured. Its start does not count; see `skyplane_gateway.transport.probe`.
PROBE_S: Final = 5.0

#: Estimates, for what a probe costs: until the routes of a round stand, and all around the rounds.
_CONNECT_S: Final = 2.0
_AROUND_S: Final = 10.0
#: The longest wait for the routes of a round.
_CONNECT_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05

#: `auto` probes where that takes at most these shares of the planned time and the planned bill.
MOST_TIME: Final = 0.02
MOST_COST: Final = 0.01


def probed(context: ClientContext, job: TransferJob, fleet: Fleet) -> Fleet:
    """The fleet with a plan that was made on what it has measured; the fleet itself without.

    A probe that fails changes nothing. Takes the fleet down if it does not get its routes back, or
    after an interruption.

    Raises as `Provisioner.ensure`.
    """
    if job.probe == "never" or not fleet.plan.edges or fleet.plan.trees:
        return fleet
    rounds = rounds_of(edges_to_probe(fleet.plan))
    reason = _why_not(context, job, fleet, rounds)
    if reason:
        level = logging.INFO if job.probe == "auto" else logging.WARNING
        log.log(level, "the fleet is not probed: %s", reason)
        return fleet
    began_s = context.clock.monotonic()
    try:
        planned = _planned_again(context, job, fleet, rounds)
        rebuilt = context.fleets.rebuild(planned)
    except BaseException:
        context.fleets.teardown_after_error(fleet)
        raise
    return replace(
        rebuilt,
        provision_s=fleet.provision_s + context.clock.monotonic() - began_s,
        instances=(*rebuilt.instances, *_ended(fleet, rebuilt, context.clock.wall())),
    )


def _ended(before: Fleet, after: Fleet, now_unix_s: float) -> Iterator[FleetInstance]:
    """The instances that the new plan does not use, with their prices: it does not have them."""
    kept = {one.cloud_id for one in after.instances}
    for one in before.instances:
        if one.cloud_id in kept:
            continue
        if one.usd_per_hour is None:
            one = replace(one, usd_per_hour=before.plan.instances[one.region].usd_per_hour)
        yield replace(one, ended_unix_s=one.ended_unix_s or now_unix_s)


def _planned_again(
    context: ClientContext, job: TransferJob, fleet: Fleet, rounds: Sequence[Sequence[Edge]]
) -> Fleet:
    """The fleet as it should be, with other routes than it has now."""
    plan, clock = fleet.plan, context.clock
    began_s = clock.monotonic()
    measured: list[EdgeMeasurement] = []
    try:
        fleet = context.fleets.rebuild(fleet, is_to_probe=True)
        grid = priced_for(context.grid(), job.policy, plan.volume_gb)
        measured.extend(measure(context, fleet, rounds, grid))
    except SkyplaneError as error:
        log.warning("the probe failed, so the plan stays: %s", error)
        # What was sent has cost something.
        return replace(fleet, probes=tuple(measured))
    took_s = clock.monotonic() - began_s
    spent = ProbeCost(took_s, sum(one.usd for one in measured))
    known_s = context.fleets.provisioner.provision_s
    try:
        found = plan_measured(context.grid(), job, plan, measured, spent, known_s)
    except PlanInfeasible as error:
        found, outcome = plan, f"the plan stays, since no other is within its limits: {error}"
    else:
        outcome = (
            f"planned again: {throughput(found.throughput_gbps)} instead of"
            f" {throughput(plan.throughput_gbps)}"
        )
    log.info("probed %s in %.0f s: %s", counted(len(measured), "edge"), took_s, outcome)
    return replace(fleet, plan=found, probes=tuple(measured))


def rounds_of(edges: Iterable[Edge]) -> list[list[Edge]]:
    """The edges in rounds: in each, no region sends twice, and none receives twice."""
    rounds: list[list[Edge]] = []
    for src, dst in edges:
        for one in rounds:
            if all(src != other_src and dst != other_dst for other_src, other_dst in one):
                one.append((src, dst))
                break
        else:
            rounds.append([(src, dst)])
    return rounds


# -- whether to probe


def _why_not(
    context: ClientContext, job: TransferJob, fleet: Fleet, rounds: Sequence[Sequence[Edge]]
) -> str:
    """Why a fleet is not probed; empty if it is."""
    if fleet.provisioner == IN_PROCESS or (job.probe == "auto" and fleet.provisioner == LOCAL):
        return "its gateways are on this machine"
    if job.bwlimit is not None:
        return "the sources of the job may not send as fast as they can"
    plan = fleet.plan
    if job.probe == "auto" and (plan.transfer_s is None or plan.cost.total_usd is None):
        return "the volume is not known"
    grid = priced_for(context.grid(), job.policy, plan.volume_gb)
    cost = estimated(plan, grid, rounds)
    if job.probe == "auto" and (dear := _too_dear(plan, cost)):
        return dear
    known_s = context.fleets.provisioner.provision_s
    try:
        plan_measured(context.grid(), job, plan, (), cost, known_s)
        with context.fleets.sessions(fleet) as sessions:
            statuses = sessions.each(fleet.gateways, lambda _, client: client.status())
    except PlanInfeasible as error:
        return f"what it costs would break the limits of the job ({error})"
    except GatewayError as error:
        return f"a gateway does not answer ({error})"
    if any(status["attached"] or status["leading"] for status in statuses.values()):
        return "it has a transfer"
    return ""


def _too_dear(plan: TransferPlan, cost: ProbeCost) -> str:
    if cost.seconds > MOST_TIME * (plan.transfer_s or 0.0):
        return f"{cost.seconds:.0f} s are more than {MOST_TIME:.0%} of the planned time"
    if cost.usd > MOST_COST * (plan.cost.total_usd or 0.0):
        return f"{cost.usd:.2g} USD are more than {MOST_COST:.0%} of the planned bill"
    return ""


def estimated(plan: TransferPlan, grid: Grid, rounds: Sequence[Sequence[Edge]]) -> ProbeCost:
    """What a probe takes at the rates of the grid."""
    seconds = probe_s(rounds)
    usd = seconds * usd_per_s(plan)
    for src, dst in (edge for one in rounds for edge in one):
        gbps = modelled_gbps(grid, (src, dst))
        usd += gbit_to_gb(gbps * PROBE_S) * grid.egress_price(src, dst)
    return ProbeCost(seconds, usd)


def probe_s(rounds: Sequence[Sequence[Edge]]) -> float:
    """What so many rounds take, in seconds: an estimate."""
    return len(rounds) * (PROBE_S + _CONNECT_S) + _AROUND_S


def modelled_gbps(grid: Grid, edge: Edge) -> float:
    src, dst = (grid.index_of(tag) for tag in edge)
    return float(grid.throughput_gbps[src, dst])


# -- the probe


def measure(
    context: ClientContext, fleet: Fleet, rounds: Sequence[Sequence[Edge]], grid: Grid
) -> Generator[EdgeMeasurement]:
    """Measure each edge on one instance of both regions. The fleet's own routes are gone then.

    Raises GatewayError: a gateway does not answer, or a connection broke. ProvisionFailed: the
    routes of a round do not stand in time.
    """
    nodes: dict[str, list[str]] = {}
    for gateway in fleet.gateways:
        nodes.setdefault(gateway.region, []).append(gateway.node)
    routes: dict[Edge, list[Route]] = {}
    planned = [Route.from_dict(route) for route in fleet.routes]
    for route in probe_routes([edge for one in rounds for edge in one], nodes, planned):
        src, dst = (fleet.gateway(node).region for node in route.nodes)
        routes.setdefault((src, dst), []).append(route)
    with context.fleets.sessions(fleet) as sessions:
        for edges in rounds:
            now = [route for edge in edges for route in routes[edge]]
            _connect(sessions, now, context.clock)
            reports = _reports(sessions, now)
            at_unix_s = context.clock.wall()
            for edge in edges:
                its = [reports[route.nodes[0]] for route in routes[edge]]
                yield _measurement(edge, its, grid, at_unix_s)


def _connect(sessions: FleetSessions, routes: Sequence[Route], clock: Clock) -> None:
    """Give the fleet these routes alone, and wait until they stand."""
    fleet = sessions.fleet
    handles = {gateway.node: gateway for gateway in fleet.gateways}
    sessions.each(
        fleet.gateways, lambda one, client: client.put_topology(topology_of(routes, handles, one))
    )
    used = [fleet.gateway(node) for node in {node for route in routes for node in route.nodes}]
    end_s = clock.monotonic() + _CONNECT_TIMEOUT_S
    while True:
        statuses = sessions.each(used, lambda _, client: client.status())
        if all(status["connected"] for status in statuses.values()):
            return
        if clock.monotonic() >= end_s:
            raise ProvisionFailed(
                f"gateways of fleet {fleet.key} did not connect within {_CONNECT_TIMEOUT_S:g} s"
            )
        clock.sleep(_POLL_S)


def _reports(sessions: FleetSessions, routes: Sequence[Route]) -> dict[str, ProbeReport]:
    """Source -> what its route has carried, at the same time as the others."""
    number_of = {route.nodes[0]: route.number for route in routes}

    def probe(gateway: GatewayHandle, client: ControlClient) -> ProbeReport:
        return client.probe(number_of[gateway.node], PROBE_S)

    senders = [sessions.fleet.gateway(node) for node in number_of]
    return sessions.each(senders, probe, at_once=len(senders))


def _measurement(
    edge: Edge, reports: Sequence[ProbeReport], grid: Grid, at_unix_s: float
) -> EdgeMeasurement:
    src, dst = edge
    sent_gb = bytes_to_gb(sum(one.sent_bytes for one in reports))
    return EdgeMeasurement(
        src=src,
        dst=dst,
        gbps=sum(one.gbps for one in reports),
        connections=sum(one.connections for one in reports),
        instances=1,
        seconds=max(one.seconds for one in reports),
        bytes=sum(one.bytes for one in reports),
        at_unix_s=at_unix_s,
        modelled_gbps=modelled_gbps(grid, edge),
        usd=sent_gb * grid.egress_price(src, dst),
    )
