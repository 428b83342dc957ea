"""Why a plan is what it is, in words whose every number is a plan that was made as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.plan import TransferPlan
from skyplane_orchestration.planner.answer import PROOF_S, plan
from skyplane_orchestration.planner.baselines import direct

#: The price ceiling of "what would more money buy", relative to the plan's own price.
MORE_MONEY: Final = 1.1
#: A price is met again by a solver only to about this much.
_SAME: Final = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class RelayWorth:
    """What one relay is good for.

    Attributes:
        tag: region of the relay.
        flow_gbps: what the plan sends over it.
        egress_usd_per_gb: egress that a byte over it pays from source to destination, on
            average over the plan's paths through it.
        gbps_without: the most at the plan's own price when this region may not relay; None
            where that price buys nothing then.
        usd_per_gb_without: the cheapest at the plan's own rate then; None where that rate
            is out of reach.
    """

    tag: str
    flow_gbps: float
    egress_usd_per_gb: float
    gbps_without: float | None
    usd_per_gb_without: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan is what it is.

    Attributes:
        plan: what is explained.
        direct: the direct path with one instance at each end; None where there is none.
        direct_egress_usd_per_gb: egress of the direct edge; None where there is none.
        relays: what each relay is good for, in order of their names.
        ceiling_usd_per_gb: a tenth more than the plan's price.
        gbps_for_more: the most under that ceiling; None for a plan without edges.
    """

    plan: TransferPlan
    direct: TransferPlan | None
    direct_egress_usd_per_gb: float | None
    relays: tuple[RelayWorth, ...]
    ceiling_usd_per_gb: float
    gbps_for_more: float | None

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentences(self))


def explain_plan(
    grid: Grid,
    answer: TransferPlan,
    *,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    proof_s: float = PROOF_S,
) -> Explanation:
    """Explain a plan by planning again: twice without each relay, once for more money.

    The arguments are those that the plan was made with; see `plan`. Raises what `plan`
    raises, except for PlanInfeasible, which is an answer here.
    """

    def again(objective: Objective, *without: str) -> TransferPlan | None:
        try:
            return plan(
                grid,
                answer.src,
                answer.dst,
                objective,
                limits=limits,
                policy=replace(policy, exclude=(*policy.exclude, *without)),
                proof_s=proof_s,
            )
        except PlanInfeasible:
            return None

    price = answer.cost.usd_per_gb
    ceiling = price * MORE_MONEY
    if not answer.edges:
        return Explanation(answer, None, None, (), ceiling, None)
    alone = _direct(grid, answer, limits)
    dearer = again(MaximizeThroughput(max_usd_per_gb=ceiling)) if price > 0 else None
    return Explanation(
        answer,
        alone,
        alone.edges[0].usd_per_gb if alone else None,
        tuple(_worth(answer, tag, again) for tag in answer.relays),
        ceiling,
        dearer.throughput_gbps if dearer else None,
    )


def _worth(
    answer: TransferPlan, tag: str, again: Callable[[Objective, str], TransferPlan | None]
) -> RelayWorth:
    paths = [path for path in answer.paths if tag in path.regions]
    flow = sum(path.flow_gbps for path in paths)
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in answer.edges}
    paid = sum(path.flow_gbps * prices[hop] for path in paths for hop in pairwise(path.regions))
    ceiling = answer.cost.usd_per_gb * _SAME
    fastest = again(MaximizeThroughput(max_usd_per_gb=ceiling), tag) if ceiling > 0 else None
    cheapest = again(MinimizeCost(answer.throughput_gbps / _SAME), tag)
    return RelayWorth(
        tag,
        flow,
        paid / flow,
        fastest.throughput_gbps if fastest else None,
        cheapest.cost.usd_per_gb if cheapest else None,
    )


def _direct(grid: Grid, answer: TransferPlan, limits: Limits) -> TransferPlan | None:
    try:
        return direct(grid, answer.src, answer.dst, 1, limits=limits)
    except PlanInfeasible:
        return None


# ---------------------------------------------------------------- in words


def _sentences(why: Explanation) -> Iterator[str]:
    answer = why.plan
    if not answer.edges:
        yield "No bytes travel between regions, so there is nothing to choose."
        return
    if answer.binding:
        yield f"What binds: {', '.join(answer.binding)}."
    else:
        yield "No limit binds: nothing cheaper per GB was found at the rate asked for or above."
    if why.direct is None:
        yield "There is no direct path."
    else:
        there = why.direct.throughput_gbps, why.direct.cost.usd_per_gb
        yield (
            f"The direct path with one instance at each end moves {there[0]:.2f} Gbit/s at"
            f" {there[1]:.4f} USD per GB; the plan moves"
            f" {_rate_change(answer.throughput_gbps, there[0])} at"
            f" {_price_change(answer.cost.usd_per_gb, there[1])}."
        )
    for relay in why.relays:
        yield _relay_sentence(why, relay)
    if not why.relays:
        yield "No relay is used."
    if why.gbps_for_more is not None:
        yield (
            f"10 % more money ({why.ceiling_usd_per_gb:.4f} USD per GB) would buy"
            f" {_rate_change(why.gbps_for_more, answer.throughput_gbps)}."
        )


def _relay_sentence(why: Explanation, relay: RelayWorth) -> str:
    egress = f"{relay.egress_usd_per_gb:.4f} USD per GB of egress"
    if why.direct_egress_usd_per_gb is not None:
        egress += f" (direct: {why.direct_egress_usd_per_gb:.4f})"
    if relay.gbps_without is None:
        rate = "the plan's price buys nothing"
    else:
        change = _rate_change(relay.gbps_without, why.plan.throughput_gbps)
        rate = f"the plan's price buys {change}"
    if relay.usd_per_gb_without is None:
        price = "the plan's rate is out of reach"
    else:
        change = _price_change(relay.usd_per_gb_without, why.plan.cost.usd_per_gb)
        price = f"the plan's rate costs {change}"
    return (
        f"{relay.tag} carries {relay.flow_gbps:.2f} Gbit/s at {egress}; without it {rate}"
        f" and {price}."
    )


def _rate_change(gbps: float, other: float) -> str:
    word = "more" if gbps >= other else "less"
    return f"{gbps:.2f} Gbit/s ({abs(gbps - other):.2f} {word})"


def _price_change(usd_per_gb: float, other: float) -> str:
    word = "more" if usd_per_gb >= other else "less"
    return f"{usd_per_gb:.4f} USD per GB ({abs(usd_per_gb - other):.4f} {word})"
