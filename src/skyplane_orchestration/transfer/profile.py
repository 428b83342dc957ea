"""Measures all pairs of some regions on a fleet of their own, for a grid of measured rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import permutations

from skyplane_orchestration.errors import BudgetReached, ConfigurationInvalid, PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.model.result import CostOutcome
from skyplane_orchestration.transfer.actual_cost import usd_per_s, with_other_items
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.instance_meter import instances_usd
from skyplane_orchestration.transfer.probe import (
    PROBE_S,
    measure,
    modelled_gbps,
    probe_s,
    rounds_of,
)
from skyplane_orchestration.units import gbit_to_gb


def profile_plan(grid: Grid, regions: Sequence[str]) -> TransferPlan:
    """One default instance in each region and a path between each two, with time and cost.

    Its volume is what the grid expects to be sent, over the whole time.

    Raises ConfigurationInvalid for fewer than two regions or one twice, UnknownRegion.
    """
    from skyplane_orchestration.planner.build_plan import PlanRequest, assemble
    from skyplane_orchestration.planner.overlay import Overlay

    if len(regions) < 2 or len(set(regions)) < len(regions):
        raise ConfigurationInvalid("a profile is of two regions or more, each given once")
    pairs = list(permutations(regions, 2))
    seconds = probe_s(rounds_of(pairs))
    flows = {pair: modelled_gbps(grid, pair) * PROBE_S / seconds for pair in pairs}
    clouds = {tag: tag.partition(":")[0] for tag in regions}
    overlay = Overlay(
        throughput_gbps=sum(flows.values()),
        paths={(*pair,): flow for pair, flow in flows.items()},
        flows=flows,
        connections=dict.fromkeys(pairs, 1),
        instances=dict.fromkeys(regions, 1),
        types={tag: grid.priced(tag, grid.instance_type(clouds[tag])) for tag in regions},
    )
    volume_gb = gbit_to_gb(overlay.throughput_gbps * seconds)
    request = PlanRequest(grid, regions[0], tuple(regions[1:]), volume_gb, 0, Limits())
    solver = SolverReport("optimal", 0.0, 0.0, 0.0)
    return assemble(request, overlay, objective={}, binding=(), solver=solver)


def profiled(
    context: ClientContext,
    regions: Sequence[str],
    max_usd: float,
    on_plan: Callable[[TransferPlan], None],
) -> list[EdgeMeasurement]:
    """The rates of all ordered pairs, measured on a fleet that ends whatever happens.

    Args:
        on_plan: is called with the fleet, its time and its cost, before it starts.

    Raises PlanInfeasible: its plan costs more than `max_usd`, and nothing starts. BudgetReached:
        it has cost `max_usd`, and some pairs are not measured. GatewayError. As `profile_plan` and
        `Provisioner.ensure`.
    """
    grid, identity = context.grid(), context.identity
    plan = profile_plan(grid, regions)
    on_plan(plan)
    usd = plan.cost.total_usd or 0.0
    if not usd <= max_usd:
        raise PlanInfeasible.about(
            "it would cost {usd:.4g} USD; {max_usd} is {most:g}", usd=usd, most=max_usd
        )
    began_s, found = context.clock.monotonic(), list[EdgeMeasurement]()
    fleet = context.fleets.ensure(
        identity.fleet_key(0), plan, 0, identity.deployment, is_limited=True, is_to_probe=True
    )
    try:
        rounds = rounds_of((edge.src, edge.dst) for edge in plan.edges)
        with closing(measure(context, fleet, rounds, grid)) as measured:
            for one in measured:
                found.append(one)
                seconds = context.clock.monotonic() - began_s
                usd = _cost(fleet, found, seconds, context.clock.wall()).total_usd
                if usd >= max_usd:
                    raise BudgetReached.about(
                        "stopped, since it has cost {usd:.4g} USD; {max_usd} is {most:g}",
                        usd=usd,
                        most=max_usd,
                    )
    except BaseException:
        context.fleets.teardown_after_error(fleet)
        raise
    context.fleets.teardown(fleet)
    return found


def _cost(
    fleet: Fleet, found: Sequence[EdgeMeasurement], seconds: float, now_unix_s: float
) -> CostOutcome:
    rented_usd = instances_usd(fleet, now_unix_s)
    cost = CostOutcome(
        egress_usd=sum(one.usd for one in found),
        instance_usd=rented_usd if fleet.instances else usd_per_s(fleet.plan) * seconds,
        request_usd=0.0,
    )
    return with_other_items(cost, fleet.plan, 0)
