"""Why a plan is what it is, in words whose every number is a plan that was made as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    objective_from_dict,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.baselines import direct
from skyplane_orchestration.planner.constraint_names import INSTANCE_QUOTA, VCPU_QUOTA
from skyplane_orchestration.planner.infeasibility import in_words
from skyplane_orchestration.planner.optimize import plan

#: The budget of "what would more money buy", relative to the plan's own.
MORE_MONEY: Final = 1.1
#: A price is met again by a solver only to about this much.
_SAME: Final = 1 + 1e-6
#: What is nearer to the plan than this (relative) is no change worth a sentence.
_WORTH_SAYING: Final = 1e-3

#: Plans again for another objective, without some regions or within other limits.
Again = Callable[[Objective, tuple[str, ...], Limits], TransferPlan | None]


@dataclass(frozen=True, slots=True)
class RelayWorth:
    """What one relay is good for.

    Attributes:
        tag: region of the relay.
        flow_gbps: what the plan sends over it.
        egress_usd_per_gb: egress that a byte over it pays from source to destination, on
            average over the plan's paths through it.
        gbps_without: the most for the plan's own money when this region may not relay; None
            where that buys nothing then.
        money_without: the cheapest at the plan's own rate then; None where that rate is out
            of reach.
    """

    tag: str
    flow_gbps: float
    egress_usd_per_gb: float
    gbps_without: float | None
    money_without: float | None


@dataclass(frozen=True, slots=True)
class MoreInstances:
    """What the same objective gets where one quota allows one instance more in each region.

    Attributes:
        quota: `instance_quota` or `vcpu_quota`.
        limits: those with the larger quota.
        plan: the plan within them.
    """

    quota: str
    limits: Limits
    plan: TransferPlan


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan is what it is.

    Money is USD for the whole job where the plan has a volume, with boot, minimum billing and
    requests; else USD per GB as in (4a).

    Attributes:
        plan: what is explained.
        direct: the direct path with one instance at each end; None where there is none.
        direct_egress_usd_per_gb: egress of the direct edge; None where there is none.
        relays: what each relay is good for, in order of their names.
        more: one more instance per region, where that is a change; else None.
        money, more_money: the plan's, and a tenth more.
        gbps_for_more: the most for a tenth more; None for a plan without edges.
    """

    plan: TransferPlan
    direct: TransferPlan | None
    direct_egress_usd_per_gb: float | None
    relays: tuple[RelayWorth, ...]
    more: MoreInstances | None
    money: float
    more_money: float
    gbps_for_more: float | None

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentences(self))


def money_of(answer: TransferPlan) -> float:
    """USD for the job, or USD per GB for a plan without a volume."""
    total = answer.cost.total_usd
    return answer.cost.usd_per_gb if total is None else total


def explain_plan(
    grid: Grid,
    answer: TransferPlan,
    *,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    proof_s: float = 0.0,
) -> Explanation:
    """Explain a plan by planning again: without each relay, and for more of what binds.

    The arguments are those that the plan was made with; see `plan`. Proofs would not change
    the words, so no time is given to them. What the policy lets a job cost is left aside.
    Raises what `plan` raises, except for PlanInfeasible, which is an answer here.
    """
    money = money_of(answer)
    if not answer.edges:
        return Explanation(answer, None, None, (), None, money, money * MORE_MONEY, None)

    def again(
        objective: Objective, without: tuple[str, ...] = (), within: Limits = limits
    ) -> TransferPlan | None:
        try:
            return plan(
                grid,
                answer.src,
                answer.dst,
                objective,
                volume_gb=answer.volume_gb,
                limits=within,
                policy=Policy(policy.allow, (*policy.exclude, *without)),
                proof_s=proof_s,
            )
        except PlanInfeasible:
            return None

    alone = _direct(grid, answer, limits)
    dearer = again(_for_money(answer, money * MORE_MONEY)) if money > 0 else None
    return Explanation(
        answer,
        alone,
        alone.edges[0].usd_per_gb if alone else None,
        tuple(_worth(answer, tag, again, limits) for tag in answer.relays),
        _one_more(grid, answer, again, limits),
        money,
        money * MORE_MONEY,
        dearer.throughput_gbps if dearer else None,
    )


def _requests_usd(answer: TransferPlan) -> float:
    """Plans made again do not know how many objects there are: requests are put aside."""
    return 0.0 if answer.volume_gb is None else answer.cost.request_usd or 0.0


def _for_money(answer: TransferPlan, money: float) -> MaximizeThroughput:
    if answer.volume_gb is None:
        return MaximizeThroughput(max_usd_per_gb=money)
    return MaximizeThroughput(max_cost_usd=money - _requests_usd(answer))


def _worth(answer: TransferPlan, tag: str, again: Again, limits: Limits) -> RelayWorth:
    paths = [path for path in answer.paths if tag in path.regions]
    flow = sum(path.flow_gbps for path in paths)
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in answer.edges}
    paid = sum(path.flow_gbps * prices[hop] for path in paths for hop in pairwise(path.regions))
    money = money_of(answer) * _SAME
    fastest = again(_for_money(answer, money), (tag,), limits) if money > 0 else None
    cheapest = again(MinimizeCost(answer.throughput_gbps / _SAME), (tag,), limits)
    return RelayWorth(
        tag,
        flow,
        paid / flow,
        fastest.throughput_gbps if fastest else None,
        money_of(cheapest) + _requests_usd(answer) if cheapest else None,
    )


def _direct(grid: Grid, answer: TransferPlan, limits: Limits) -> TransferPlan | None:
    try:
        return direct(grid, answer.src, answer.dst, 1, limits=limits)
    except PlanInfeasible:
        return None


def _one_more(
    grid: Grid, answer: TransferPlan, again: Again, limits: Limits
) -> MoreInstances | None:
    """The same objective with a quota of one more, where that binds and brings something."""
    for quota, larger in _larger_quotas(grid, answer, limits):
        better = again(objective_from_dict(answer.objective), (), larger)
        if better is None:
            continue
        saved = 1 - (money_of(better) + _requests_usd(answer)) / (money_of(answer) or 1.0)
        gained = better.throughput_gbps / answer.throughput_gbps - 1
        is_rate = answer.objective.get("kind") == "maximize-throughput"
        if (gained if is_rate else saved) > _WORTH_SAYING:
            return MoreInstances(quota, larger, better)
    return None


def _larger_quotas(
    grid: Grid, answer: TransferPlan, limits: Limits
) -> Iterator[tuple[str, Limits]]:
    bound = {name for name, _, tag in (text.partition(" ") for text in answer.binding) if tag}
    if INSTANCE_QUOTA in bound:
        per_type = {kind.instance_limit for kind in grid.types if kind.cloud != "local"}
        given = limits.instance_limit
        if given is None and len(per_type) == 1:
            given = per_type.pop()
        if given is not None:
            yield INSTANCE_QUOTA, replace(limits, instance_limit=given + 1)
    if VCPU_QUOTA in bound:
        vcpus = {kind.name: kind.vcpus for kind in grid.types}
        used = {tag.partition(":")[0]: vcpus[group.type] for tag, group in answer.instances.items()}
        larger = {cloud: count + used.get(cloud, 0) for cloud, count in limits.vcpu_quota.items()}
        yield VCPU_QUOTA, replace(limits, vcpu_quota=larger)


# ---------------------------------------------------------------- in words


def _sentences(why: Explanation) -> Iterator[str]:
    answer = why.plan
    if not answer.edges:
        yield "No bytes travel between regions, so there is nothing to choose."
        return
    if answer.binding:
        yield f"What binds: {'; '.join(in_words(name) for name in answer.binding)}."
    else:
        yield "No limit binds: nothing cheaper was found at the rate asked for or above."
    if why.direct is None:
        yield "There is no direct path."
    else:
        there = why.direct.throughput_gbps, why.direct.cost.usd_per_gb
        yield (
            f"The direct path with one instance at each end moves {there[0]:.2f} Gbit/s at"
            f" {there[1]:.4f} USD per GB; the plan moves"
            f" {_rate_change(answer.throughput_gbps, there[0])} at"
            f" {_money_change(answer.cost.usd_per_gb, there[1], 'USD per GB')}."
        )
    for relay in why.relays:
        yield _relay_sentence(why, relay)
    if not why.relays:
        yield "No relay is used."
    if why.more is not None:
        yield _more_sentence(why, why.more)
    if why.gbps_for_more is not None:
        yield (
            f"10 % more money ({_money(why.more_money, _unit(why))}) would buy"
            f" {_rate_change(why.gbps_for_more, answer.throughput_gbps)}."
        )


def _relay_sentence(why: Explanation, relay: RelayWorth) -> str:
    egress = f"{relay.egress_usd_per_gb:.4f} USD per GB of egress"
    if why.direct_egress_usd_per_gb is not None:
        egress += f" (direct: {why.direct_egress_usd_per_gb:.4f})"
    if relay.gbps_without is None:
        rate = "the plan's money buys nothing"
    else:
        change = _rate_change(relay.gbps_without, why.plan.throughput_gbps)
        rate = f"the plan's money buys {change}"
    if relay.money_without is None:
        price = "the plan's rate is out of reach"
    else:
        price = f"the plan's rate costs {_money_change(relay.money_without, why.money, _unit(why))}"
    return (
        f"{relay.tag} carries {relay.flow_gbps:.2f} Gbit/s at {egress}; without it {rate}"
        f" and {price}."
    )


def _more_sentence(why: Explanation, more: MoreInstances) -> str:
    if more.quota == INSTANCE_QUOTA:
        what = f"One more instance per region ({more.limits.instance_limit})"
    else:
        quotas = ", ".join(f"{cloud} {count}" for cloud, count in more.limits.vcpu_quota.items())
        what = f"vCPUs for one more instance per region ({quotas})"
    if why.plan.objective.get("kind") == "maximize-throughput":
        gain = _rate_change(more.plan.throughput_gbps, why.plan.throughput_gbps)
        return f"{what} would make it {gain}."
    money = money_of(more.plan) + _requests_usd(why.plan)
    return f"{what} would bring the price to {_money_change(money, why.money, _unit(why))}."


def _unit(why: Explanation) -> str:
    return "USD per GB" if why.plan.volume_gb is None else "USD"


def _money(amount: float, unit: str) -> str:
    return f"{amount:.4f} {unit}" if unit == "USD per GB" or amount < 1 else f"{amount:.2f} {unit}"


def _rate_change(gbps: float, other: float) -> str:
    word = "more" if gbps >= other else "less"
    return f"{gbps:.2f} Gbit/s ({abs(gbps - other):.2f} {word})"


def _money_change(money: float, other: float, unit: str) -> str:
    word = "more" if money >= other else "less"
    digits = 4 if unit == "USD per GB" or money < 1 else 2
    return f"{money:.{digits}f} {unit} ({abs(money - other):.{digits}f} {word})"
