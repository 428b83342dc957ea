"""`compare`: one job by the optimiser, without one, and by the clouds' own services.

All on one grid with the same limits, so that the ways differ in how they go alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.plan import PlanCost, TransferPlan
from skyplane_orchestration.planner.baselines import baselines, default_objective
from skyplane_orchestration.planner.objectives import LEAST_GBPS
from skyplane_orchestration.planner.optimize import PROOF_S, plan
from skyplane_orchestration.planner.pricing.transfer_services import ServiceQuote, quote_services
from skyplane_orchestration.planner.single_region import crosses_no_edge

SCHEMA_VERSION: Final = 1
#: A price that no plan has: the ceiling under which throughput alone counts.
_ANY_USD_PER_GB: Final = 1e6
#: Without a ceiling: what the fastest plan may cost, as a multiple of the cheapest's price.
MORE_MONEY: Final = 1.25

_RON: Final = "over the one relay that is fastest, whatever it costs"

PLAN, SERVICE = "plan", "service"

#: Said of every comparison; the measurements are Fig. 6 of the paper, at most 8 instances.
RATES_OF_SERVICES: Final = (
    "the services publish no rates, so none is given; Skyplane's prototype was up to 4.6"
    " times as fast as DataSync, up to 5.0 times as fast as Storage Transfer Service, and on"
    " some routes about as fast as AzCopy (NSDI 2023, section 7.2)"
)


@dataclass(frozen=True, slots=True)
class Way:
    """One row of a comparison: a plan, or what a service would charge.

    Attributes:
        name: `cheapest`, `fastest_at_ceiling`, `fastest`, `direct_1`, `direct_n`, `ron_1`,
            `ron_n`, or the name of a service.
        title: the same for people.
        throughput_gbps, transfer_s: None for a service: none publishes a rate.
        egress_usd, instance_usd, request_usd, service_usd, total_usd: for the volume; None
            where it was not given, where there is none, or where it is not known. Instances
            are paid while they come up, while bytes move, and to their least billing.
        usd_per_gb: per GB (1e9 bytes), without requests and without fees per run.
        relays: regions between the ends.
        reason: why there is no such way; empty where there is.
        notes: what was asked for, and what is not counted.
        plan: the plan behind it; None for a service.
        quote: the service's quote; None for a plan.
    """

    name: str
    title: str
    throughput_gbps: float | None = None
    transfer_s: float | None = None
    egress_usd: float | None = None
    instance_usd: float | None = None
    request_usd: float | None = None
    service_usd: float | None = None
    total_usd: float | None = None
    usd_per_gb: float | None = None
    relays: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    plan: TransferPlan | None = None
    quote: ServiceQuote | None = None

    @property
    def kind(self) -> str:
        return PLAN if self.quote is None else SERVICE

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; a service's sources stand under `fee` and `served`."""
        document = {"kind": self.kind, **asdict(self)}
        quote = document.pop("quote") or {}
        return {
            **document,
            "relays": list(self.relays),
            "notes": list(self.notes),
            "plan": self.plan and self.plan.to_dict(),
            "fee": quote.get("fee"),
            "served": quote.get("served"),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """One job, every way.

    Attributes:
        goal: what the cheapest plan was asked for.
        ceiling: what the fastest plan at a price was asked for; None where no edge is
            crossed.
        notes: what holds for all of it.
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
        """The row of that name. Raises KeyError when there is none."""
        return {way.name: way for way in self.ways}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, `schema_version` first."""
        return {
            "schema_version": SCHEMA_VERSION,
            "src": self.src,
            "dst": self.dst,
            "volume_gb": self.volume_gb,
            "objects": self.objects,
            "goal": objective_to_dict(self.goal),
            "ceiling": self.ceiling and objective_to_dict(self.ceiling),
            "ways": [way.to_dict() for way in self.ways],
            "notes": list(self.notes),
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
    proof_s: float = PROOF_S,
) -> Comparison:
    """Every way from one region tag to another, side by side.

    Plans: the cheapest at the goal; the fastest at the price of a ceiling; the fastest at
    any price. Baselines: the direct path and the best single relay (RON, price-blind), with
    one instance per region and with as many as the limits allow. Services: what DataSync,
    Storage Transfer Service and AzCopy would charge, or why they do not serve the route.

    Args:
        objective: the goal (a floor or a deadline) or the ceiling. Without a goal it is the
            rate of the direct path with one instance; without a ceiling it is `MORE_MONEY`
            times what the cheapest plan costs, in all where the volume is given.
        policy: regions that may relay, in the plans and in RON.

    Raises what `plan` raises for what was asked; a way that was not asked for and does not
    exist has its reason instead.
    """
    ask = partial(
        plan,
        grid,
        src,
        dst,
        volume_gb=volume_gb,
        objects=objects,
        limits=limits,
        policy=policy,
        proof_s=proof_s,
    )
    goal, why = _goal(grid, src, dst, objective, limits)
    cheapest = ask(goal)
    ways, ceiling = [_way_of_plan("cheapest", "cheapest", cheapest, why)], None
    if cheapest.edges:
        ceiling, price = _ceiling(objective, cheapest)
        ways += _fastest(ask, objective, ceiling, price)
        others = baselines(grid, src, dst, volume_gb, objects=objects, limits=limits, policy=policy)
        ways += [_baseline(name, *one) for name, one in others.items()]
    quotes = quote_services(grid, src, dst, volume_gb, objects)
    return Comparison(
        src=src,
        dst=dst,
        volume_gb=volume_gb,
        objects=objects,
        goal=goal,
        ceiling=ceiling,
        ways=(*ways, *(_way_of_quote(quote) for quote in quotes)),
    )


def _goal(
    grid: Grid, src: str, dst: str, objective: Objective | None, limits: Limits
) -> tuple[MinimizeCost | Deadline, str]:
    """What the cheapest plan has to reach, and that in words."""
    if isinstance(objective, Deadline):
        return objective, f"within {objective.seconds:g} s, gateways started"
    if isinstance(objective, MinimizeCost):
        least = "exactly" if objective.exactly else "at least"
        return objective, f"{least} {objective.min_throughput_gbps:g} Gbit/s"
    try:
        goal = default_objective(grid, src, dst, limits)
    except PlanInfeasible:
        return MinimizeCost(LEAST_GBPS), "at any rate: there is no direct path to take one from"
    rate = f"at least {goal.min_throughput_gbps:.4g} Gbit/s"
    if crosses_no_edge(grid, src, dst):
        return goal, rate
    return goal, f"{rate}, the rate of the direct path with one instance"


def _ceiling(objective: Objective | None, cheapest: TransferPlan) -> tuple[MaximizeThroughput, str]:
    """What the fastest plan may cost, and that in words."""
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


def _fastest(
    ask: Callable[[Objective], TransferPlan],
    objective: Objective | None,
    ceiling: MaximizeThroughput,
    price: str,
) -> list[Way]:
    name, title = "fastest_at_ceiling", "fastest at a price"
    if ceiling is objective:
        limited = _way_of_plan(name, title, ask(ceiling), price)
    else:
        limited = _tried(name, title, lambda: ask(ceiling), price)
    unlimited = MaximizeThroughput(max_usd_per_gb=_ANY_USD_PER_GB)
    return [limited, _tried("fastest", "fastest", lambda: ask(unlimited), "at any price")]


def _baseline(name: str, count: int, made: TransferPlan | PlanInfeasible) -> Way:
    is_relayed = name.startswith("ron")
    title = f"{'RON' if is_relayed else 'direct'}, {count} instance{'s' if count > 1 else ''}"
    if isinstance(made, PlanInfeasible):
        return Way(name, title, reason=made.message)
    return _way_of_plan(name, title, made, _RON if is_relayed else "")


def _tried(name: str, title: str, make: Callable[[], TransferPlan], note: str = "") -> Way:
    try:
        return _way_of_plan(name, title, make(), note)
    except PlanInfeasible as error:
        return Way(name, title, reason=error.message)


def _way_of_plan(name: str, title: str, found: TransferPlan, note: str = "") -> Way:
    cost = found.cost
    return Way(
        name=name,
        title=title,
        throughput_gbps=found.throughput_gbps,
        transfer_s=found.transfer_s,
        egress_usd=cost.egress_usd,
        instance_usd=_instance_usd(cost),
        request_usd=cost.request_usd,
        total_usd=cost.total_usd,
        usd_per_gb=cost.usd_per_gb,
        relays=found.relays,
        notes=(*((note,) if note else ()), *_unproven(found), *found.notes),
        plan=found,
    )


def _unproven(found: TransferPlan) -> tuple[str, ...]:
    """How far the proven bound is, where the search ended before its proof."""
    if found.solver.status != "feasible":
        return ()
    return (f"at most {found.solver.gap:.2%} short of the best there can be",)


def _instance_usd(cost: PlanCost) -> float | None:
    if cost.instance_usd is None:
        return None
    return cost.instance_usd + (cost.boot_usd or 0.0) + (cost.minimum_billing_usd or 0.0)


def _way_of_quote(quote: ServiceQuote) -> Way:
    return Way(
        name=quote.service,
        title=quote.title,
        egress_usd=quote.egress_usd,
        request_usd=quote.request_usd,
        service_usd=quote.service_usd,
        total_usd=quote.total_usd,
        usd_per_gb=quote.usd_per_gb,
        reason=quote.reason,
        notes=quote.notes,
        quote=quote,
    )
