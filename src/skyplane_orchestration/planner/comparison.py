"""`compare`: one job by the planner, by the baselines, and by the clouds' own transfer services.

All use the same grid and the same limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from skyplane_gateway.common.schema import encode
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    VALUE_OF_TIME_USD_PER_HOUR,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.baselines import baselines, default_objective
from skyplane_orchestration.planner.build_plan import LEAST_GBPS
from skyplane_orchestration.planner.optimize import plan
from skyplane_orchestration.planner.pricing.transfer_services import quote_services
from skyplane_orchestration.planner.pricing.way import Way
from skyplane_orchestration.planner.single_region import is_single_region

SCHEMA_VERSION: Final = 1
#: A price above that of every plan: a ceiling that never binds.
_NO_CEILING_USD_PER_GB: Final = 1e6
#: The ceiling without an objective, as a multiple of the cheapest plan's cost.
MORE_MONEY: Final = 1.25

_RON: Final = "over the one relay that is fastest, whatever it costs"

#: A note of every comparison. Its figures are from Fig. 6 of the paper, with up to 8 instances.
RATES_OF_SERVICES: Final = (
    "the services publish no rates, so there is none here; Skyplane's prototype was up to 4.6"
    " times as fast as DataSync, up to 5.0 times as fast as Storage Transfer Service, and on"
    " some routes about as fast as AzCopy (NSDI 2023, section 7.2)"
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows for one job, and the objectives of its cheapest plan and of its plan at a price.

    `ceiling` is None within one region.
    """

    src: str
    dst: str
    volume_gb: float | None
    objects: int | None
    goal: MinimizeCost | Deadline
    ceiling: MaximizeThroughput | None
    ways: tuple[Way, ...]
    notes: tuple[str, ...] = (RATES_OF_SERVICES,)

    def way(self, name: str) -> Way:
        """The row of that name. Raises KeyError if there is none."""
        return {way.name: way for way in self.ways}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, `schema_version` first."""
        return {
            **encode(self, SCHEMA_VERSION),
            "goal": objective_to_dict(self.goal),
            "ceiling": self.ceiling and objective_to_dict(self.ceiling),
        }


def compare(
    grid: Grid,
    src: str,
    dst: str,
    objective: Objective | None = None,
    *,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    value_of_time_usd_per_hour: float = VALUE_OF_TIME_USD_PER_HOUR,
) -> Comparison:
    """Every plan and service from one region tag to another, side by side.

    Plans: the one with the least sum of bill and time (the knee), the cheapest at the goal, the
    fastest under a ceiling, and the fastest at any price.
    Baselines: the direct path and the best single relay (RON, which ignores prices), with one
    instance per region and with as many as the limits allow. Services: the prices of DataSync,
    Storage Transfer Service and AzCopy, or why they do not serve the route.

    Args:
        objective: the goal (a floor or a deadline) or the ceiling. The default goal is the rate of
            the direct path with one instance. The default ceiling is `MORE_MONEY` times the cost of
            the cheapest plan: the total where the volume is known, else per GB.
        policy: regions that may relay, in the plans and in RON.
        value_of_time_usd_per_hour: of the knee, unless the objective has one.

    Raises what `plan` raises for the objective. Other rows state their reason instead.
    """
    tiered = priced_for(grid, policy, volume_gb)
    plan_for = partial(
        plan, tiered, src, dst, volume_gb=volume_gb, objects=objects, limits=limits, policy=policy
    )
    goal, words = _goal(grid, src, dst, objective, limits)
    cheapest = plan_for(goal)
    ways, ceiling = [_way("cheapest", "cheapest", cheapest, words)], None
    if isinstance(goal, MinimizeCost) and not goal.exactly:
        timed = replace(goal, value_of_time_usd_per_hour=value_of_time_usd_per_hour)
        price = f"an hour until the end counts as {value_of_time_usd_per_hour:g} USD"
        ways.insert(0, _way("knee", "knee", _planned(plan_for, timed), price))
    if cheapest.edges:
        ceiling, price = _ceiling(objective, cheapest)
        limited = plan_for(ceiling) if ceiling is objective else _planned(plan_for, ceiling)
        unlimited = _planned(plan_for, MaximizeThroughput(max_usd_per_gb=_NO_CEILING_USD_PER_GB))
        ways += [
            _way("fastest_at_ceiling", "fastest at a price", limited, price),
            _way("fastest", "fastest", unlimited, "at any price"),
        ]
        others = baselines(
            tiered, src, dst, volume_gb, objects=objects, limits=limits, policy=policy
        )
        for name, (count, result) in others.items():
            kind, note = ("RON", _RON) if name.startswith("ron") else ("direct", "")
            ways.append(_way(name, f"{kind}, {counted(count, 'instance')}", result, note))
    # Services send by their own ways out, so the policy's tier does not change their prices.
    plain = priced_for(grid, replace(policy, network_tier="premium"), volume_gb)
    ways += quote_services(plain, src, dst, volume_gb, objects)
    return Comparison(
        src=src,
        dst=dst,
        volume_gb=volume_gb,
        objects=objects,
        goal=goal,
        ceiling=ceiling,
        ways=tuple(ways),
    )


def _goal(
    grid: Grid, src: str, dst: str, objective: Objective | None, limits: Limits
) -> tuple[MinimizeCost | Deadline, str]:
    """The objective of the cheapest plan, and the same in words."""
    if isinstance(objective, Deadline):
        return objective, f"within {objective.seconds:g} s, provisioning included"
    if isinstance(objective, MinimizeCost) and objective.min_throughput_gbps is not None:
        least = "exactly" if objective.exactly else "at least"
        goal = replace(objective, value_of_time_usd_per_hour=0.0)
        return goal, f"{least} {objective.floor_gbps:g} Gbit/s"
    try:
        goal = default_objective(grid, src, dst, limits)
    except PlanInfeasible:
        return MinimizeCost(LEAST_GBPS), "at any rate: there is no direct path to take one from"
    rate = f"at least {goal.floor_gbps:.4g} Gbit/s"
    if is_single_region(grid, src, dst):
        return goal, rate
    return goal, f"{rate}, the rate of the direct path with one instance"


def _ceiling(objective: Objective | None, cheapest: TransferPlan) -> tuple[MaximizeThroughput, str]:
    """The objective of the fastest plan under a ceiling, and the same in words."""
    if isinstance(objective, MaximizeThroughput):
        if objective.max_usd_per_gb is not None:
            return objective, f"for at most {objective.max_usd_per_gb:g} USD per GB"
        return objective, f"for at most {objective.max_cost_usd:g} USD in all"
    words = "for a quarter more than the cheapest: at most"
    total, per_gb = cheapest.cost.total_usd, cheapest.cost.usd_per_gb
    if total is not None:
        ceiling = MaximizeThroughput(max_cost_usd=total * MORE_MONEY)
        return ceiling, f"{words} {ceiling.max_cost_usd:.4g} USD in all"
    ceiling = MaximizeThroughput(max_usd_per_gb=per_gb * MORE_MONEY)
    return ceiling, f"{words} {ceiling.max_usd_per_gb:.4g} USD per GB"


def _planned(
    plan_for: Callable[[Objective], TransferPlan], objective: Objective
) -> TransferPlan | PlanInfeasible:
    try:
        return plan_for(objective)
    except PlanInfeasible as error:
        return error


def _way(name: str, title: str, found: TransferPlan | PlanInfeasible, note: str) -> Way:
    """The row of a plan, or why there is none."""
    if isinstance(found, PlanInfeasible):
        return Way(name, title, reason=found.message)
    cost, instance_usd = found.cost, found.cost.instance_usd
    if instance_usd is not None:
        instance_usd = instance_usd + (cost.boot_usd or 0.0) + (cost.minimum_billing_usd or 0.0)
    is_proven = found.solver.status != "feasible"
    gap = "" if is_proven else f"at most {found.solver.gap:.2%} short of the best there can be"
    return Way(
        name=name,
        title=title,
        throughput_gbps=found.throughput_gbps,
        transfer_s=found.transfer_s,
        egress_usd=cost.egress_usd,
        instance_usd=instance_usd,
        request_usd=cost.request_usd,
        other_usd=sum(cost.other_usd.values()) or None,
        total_usd=cost.total_usd,
        usd_per_gb=cost.usd_per_gb,
        relays=found.relays,
        notes=(*filter(None, (note, gap)), *found.notes),
        plan=found,
    )
