"""Explains a plan in words. Every number comes from a second plan that confirms it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import priced_for
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
from skyplane_orchestration.planner.burst import processor_sentences, rate_sentences, with_bursts
from skyplane_orchestration.planner.constraint_names import INSTANCE_QUOTA, VCPU_QUOTA
from skyplane_orchestration.planner.infeasibility import describe_limit
from skyplane_orchestration.planner.optimize import plan

#: The budget of "10 % more money", relative to the plan's own.
MORE_MONEY: Final = 1.1
#: Tolerance of the solver at a repeated price.
_SAME: Final = 1 + 1e-6
#: Smaller relative differences are not worth a sentence.
_WORTH_SAYING: Final = 1e-3

#: What a plan may use: the grid with the account's quotas, and the limits of the job.
_Bounds = tuple[Grid, Limits]

#: Plans again for another objective, without some regions, or with other bounds.
Replan = Callable[[Objective, tuple[str, ...], _Bounds], TransferPlan | None]


@dataclass(frozen=True, slots=True)
class RelayValue:
    """What the plan gains from one relay.

    Attributes:
        tag: region of the relay.
        flow_gbps: the plan's flow over it.
        egress_usd_per_gb: egress of a byte over it from source to destination, on average over the
            plan's paths through it.
        gbps_without: the most throughput for the plan's money when this region may not relay; None
            when infeasible.
        money_without: the least cost at the plan's rate when this region may not relay; None when
            infeasible.
    """

    tag: str
    flow_gbps: float
    egress_usd_per_gb: float
    gbps_without: float | None
    money_without: float | None


@dataclass(frozen=True, slots=True)
class RaisedQuota:
    """The plan for the same objective when one quota allows one more instance per region.

    `what` names that in words, `limits` are those of the job with it.
    """

    what: str
    limits: Limits
    plan: TransferPlan


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons for a plan.

    Money is the total in USD where the plan has a volume, else USD per GB (4a).

    Attributes:
        plan: the plan to explain.
        direct: the direct path with one instance at each end; None if there is none.
        relays: by region tag.
        more: one more instance per region, where that improves the plan; else None.
        money, more_money: the plan's cost, and 10 % more.
        gbps_for_more: the most throughput for 10 % more; None for a plan without edges.
        rates: which rates of the plan's instance types count, where they have a burst or where
            their processors carry less than their network.
    """

    plan: TransferPlan
    direct: TransferPlan | None
    relays: tuple[RelayValue, ...]
    more: RaisedQuota | None
    money: float
    more_money: float
    gbps_for_more: float | None
    rates: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(_sentences(self))


def price_of(explained: TransferPlan) -> float:
    """USD for the job, or USD per GB for a plan without a volume."""
    total = explained.cost.total_usd
    return explained.cost.usd_per_gb if total is None else total


def explain_plan(
    grid: Grid, explained: TransferPlan, *, limits: Limits = NO_LIMITS, policy: Policy = ANY_REGION
) -> Explanation:
    """Explain a plan by planning again: without each relay, with more money, with a larger quota.

    The arguments are those that the plan was made with (see `plan`). The explanation ignores the
    policy's `max_job_usd`.

    Raises what `plan` raises, except PlanInfeasible, which is a result here.
    """
    grid = priced_for(replace(grid, contents=explained.contents), policy, explained.volume_gb)
    money = price_of(explained)
    if not explained.edges:
        return Explanation(explained, None, (), None, money, money * MORE_MONEY, None)
    objective = objective_from_dict(explained.objective)
    bursts = rate_sentences(grid, explained, objective)
    # All second plans count the same rates as the plan, whatever their own objective.
    grid = with_bursts(grid, objective, explained.volume_gb)
    rates = (*bursts, *processor_sentences(grid, explained))

    def replan(
        objective: Objective, without: tuple[str, ...] = (), within: _Bounds = (grid, limits)
    ) -> TransferPlan | None:
        try:
            return plan(
                within[0],
                explained.src,
                explained.dst,
                objective,
                volume_gb=explained.volume_gb,
                objects=explained.objects,
                limits=within[1],
                policy=Policy(policy.allow_regions, (*policy.exclude_regions, *without)),
            )
        except PlanInfeasible:
            return None

    alone = _direct(grid, explained, limits)
    with_more = replan(_fastest_for(explained, money * MORE_MONEY)) if money > 0 else None
    return Explanation(
        explained,
        alone,
        tuple(_relay_value(explained, tag, replan, (grid, limits)) for tag in explained.relays),
        _raised_quota(grid, explained, replan, limits),
        money,
        money * MORE_MONEY,
        with_more.throughput_gbps if with_more else None,
        rates,
    )


def _fastest_for(explained: TransferPlan, money: float) -> MaximizeThroughput:
    if explained.volume_gb is None:
        return MaximizeThroughput(max_usd_per_gb=money)
    return MaximizeThroughput(max_cost_usd=money)


def _relay_value(explained: TransferPlan, tag: str, replan: Replan, bounds: _Bounds) -> RelayValue:
    paths = [path for path in explained.paths if tag in path.regions]
    flow = sum(path.flow_gbps for path in paths)
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in explained.edges}
    paid = sum(path.flow_gbps * prices[hop] for path in paths for hop in pairwise(path.regions))
    money = price_of(explained) * _SAME
    fastest = replan(_fastest_for(explained, money), (tag,), bounds) if money > 0 else None
    cheapest = replan(MinimizeCost(explained.throughput_gbps / _SAME), (tag,), bounds)
    return RelayValue(
        tag,
        flow,
        paid / flow,
        fastest.throughput_gbps if fastest else None,
        price_of(cheapest) if cheapest else None,
    )


def _direct(grid: Grid, explained: TransferPlan, limits: Limits) -> TransferPlan | None:
    try:
        return direct(grid, explained.src, explained.dst, 1, limits=limits)
    except PlanInfeasible:
        return None


def _raised_quota(
    grid: Grid, explained: TransferPlan, replan: Replan, limits: Limits
) -> RaisedQuota | None:
    """The same objective with a quota of one more, if that quota binds and the plan improves."""
    for what, larger in _larger_quotas(grid, explained, limits):
        objective = objective_from_dict(explained.objective)
        better = replan(objective, (), larger)
        if better is None:
            continue
        saved = 1 - price_of(better) / (price_of(explained) or 1.0)
        gained = better.throughput_gbps / explained.throughput_gbps - 1
        gain = gained if isinstance(objective, MaximizeThroughput) else saved
        if gain > _WORTH_SAYING:
            return RaisedQuota(what, larger[1], better)
    return None


def _larger_quotas(
    grid: Grid, explained: TransferPlan, limits: Limits
) -> Iterator[tuple[str, _Bounds]]:
    """Each larger quota in words, and the bounds with it."""
    parts = [text.partition(" ") for text in explained.binding]
    bound = {name for name, _, tag in parts if tag}
    full = [tag for name, _, tag in parts if name == INSTANCE_QUOTA and grid.instance_quota(tag)]
    if full:
        yield f"One more instance in {' and '.join(full)}", (_with_one_more(grid, full), limits)
    elif INSTANCE_QUOTA in bound:
        per_type = {kind.instance_limit for kind in grid.types if kind.cloud != "local"}
        given = limits.instance_limit
        if given is None and len(per_type) == 1:
            given = per_type.pop()
        if given is not None:
            more = replace(limits, instance_limit=given + 1)
            yield f"One more instance per region ({given + 1})", (grid, more)
    if VCPU_QUOTA in bound:
        vcpus = {kind.name: kind.vcpus for kind in grid.types}
        used = {
            tag.partition(":")[0]: vcpus[group.type] for tag, group in explained.instances.items()
        }
        larger = {cloud: count + used.get(cloud, 0) for cloud, count in limits.vcpu_quota.items()}
        quotas = ", ".join(f"{cloud} {count}" for cloud, count in larger.items())
        what = f"vCPUs for one more instance per region ({quotas})"
        yield what, (grid, replace(limits, vcpu_quota=larger))


def _with_one_more(grid: Grid, tags: Sequence[str]) -> Grid:
    """The grid, with one more instance of the account's in these regions."""
    quotas = [quota for group in grid.account.values() for quota in group]
    return grid.with_account(
        replace(quota, instances=quota.instances + 1)
        if quota.instances is not None and quota.region in tags
        else quota
        for quota in quotas
    )


# ---------------------------------------------------------------- in words


def _sentences(why: Explanation) -> Iterator[str]:
    explained = why.plan
    if not explained.edges:
        yield "No bytes travel between regions, so the plan has no alternatives."
        return
    if explained.binding:
        yield f"Binding limits: {'; '.join(describe_limit(name) for name in explained.binding)}."
    else:
        yield "No limit binds: the search found nothing cheaper at the requested rate or above."
    yield from why.rates
    if why.direct is None:
        yield "There is no direct path."
    else:
        there = why.direct.throughput_gbps, why.direct.cost.usd_per_gb
        yield (
            f"The direct path with one instance at each end moves {there[0]:.2f} Gbit/s at"
            f" {there[1]:.4f} USD per GB; the plan moves"
            f" {_rate_change(_rate_of(explained), there[0])} at"
            f" {_money_change(explained.cost.usd_per_gb, there[1], 'USD per GB')}."
        )
    for relay in why.relays:
        yield _relay_sentence(why, relay)
    if not why.relays:
        yield "No relay is used."
    if why.more is not None:
        yield _more_sentence(why, why.more)
    if why.gbps_for_more is not None:
        rate = _rate_of(explained)
        is_faster = why.gbps_for_more / rate - 1 > _WORTH_SAYING
        buys = _rate_change(why.gbps_for_more, rate) if is_faster else "no higher rate"
        money, unit = why.more_money, _unit(why)
        yield f"10 % more money ({money:.{_digits(money, unit)}f} {unit}) would buy {buys}."


def _rate_of(explained: TransferPlan) -> float:
    """What the plan is expected to move: the plans that it is compared with expect their rates."""
    return explained.expected_gbps or explained.throughput_gbps


def _relay_sentence(why: Explanation, relay: RelayValue) -> str:
    egress = f"{relay.egress_usd_per_gb:.4f} USD per GB of egress"
    if why.direct is not None:
        egress += f" (direct: {why.direct.edges[0].usd_per_gb:.4f})"
    if relay.gbps_without is None:
        rate = "the plan's money buys nothing"
    else:
        change = _rate_change(relay.gbps_without, _rate_of(why.plan))
        rate = f"the plan's money buys {change}"
    if relay.money_without is None:
        price = "the plan's rate is out of reach"
    else:
        price = f"the plan's rate costs {_money_change(relay.money_without, why.money, _unit(why))}"
    return (
        f"{relay.tag} carries {relay.flow_gbps:.2f} Gbit/s at {egress}; without it {rate}"
        f" and {price}."
    )


def _more_sentence(why: Explanation, more: RaisedQuota) -> str:
    if isinstance(objective_from_dict(why.plan.objective), MaximizeThroughput):
        gain = _rate_change(more.plan.throughput_gbps, why.plan.throughput_gbps)
        return f"{more.what} would make it {gain}."
    money = price_of(more.plan)
    return f"{more.what} would bring the price to {_money_change(money, why.money, _unit(why))}."


def _unit(why: Explanation) -> str:
    return "USD per GB" if why.plan.volume_gb is None else "USD"


def _digits(amount: float, unit: str) -> int:
    return 4 if unit == "USD per GB" or amount < 1 else 2


def _rate_change(gbps: float, other: float) -> str:
    return _change(gbps, other, "Gbit/s", 2)


def _money_change(money: float, other: float, unit: str) -> str:
    return _change(money, other, unit, _digits(money, unit))


def _change(value: float, other: float, unit: str, digits: int) -> str:
    word, apart = "more" if value >= other else "less", f"{abs(value - other):.{digits}f}"
    change = f"{apart} {word}" if float(apart) else "the same"
    return f"{value:.{digits}f} {unit} ({change})"
