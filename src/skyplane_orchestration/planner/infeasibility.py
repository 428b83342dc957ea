"""Names and describes the limits that bind, and builds the errors of infeasible objectives.

Figures in an error are rounded so that a second request with them succeeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skyplane_gateway.common.wording import with_fields
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.constraint_names import (
    CONNECTION_LIMIT_IN,
    CONNECTION_LIMIT_OUT,
    COST_CEILING,
    DEADLINE,
    EGRESS_LIMIT,
    INGRESS_LIMIT,
    INSTANCE_QUOTA,
    NO_ROUTE,
    OBJECTS,
    POLICY_MAX_JOB_USD,
    PROCESSOR,
    STORAGE_READ,
    STORAGE_WRITE,
    THROUGHPUT_FLOOR,
    VCPU_QUOTA,
)
from skyplane_orchestration.planner.instance_options import Quota, quota_of, roles_in
from skyplane_orchestration.planner.overlay import Overlay, instances_needed

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.grids.arrays import Floats
    from skyplane_orchestration.planner.problem import PlanProblem

Names = tuple[str, ...]

#: A limit that is used up to this share is binding.
_TIGHT = 1e-4
#: Shadow prices below this are noise of the solver.
_WORTH = 1e-6
#: Significant digits of a figure in an error, and the solver's noise.
_DIGITS = 5
_NOISE = 1e-9


def rounded_down(value: float) -> float:
    """A rate that is feasible: at most `value`, in five significant digits."""
    scale = _scale(value)
    return math.floor(value * scale * (1 + _NOISE)) / scale if value > 0 else 0.0


def rounded_up(value: float) -> float:
    """A price or time that is feasible: at least `value`, in five significant digits."""
    scale = _scale(value)
    return math.ceil(value * scale * (1 - _NOISE)) / scale if value > 0 else 0.0


def _scale(value: float) -> float:
    return float(10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))) if value > 0 else 1.0


#: Descriptions of limits; the region follows, if there is one.
_WORDS = {
    THROUGHPUT_FLOOR: "the throughput that was asked for",
    DEADLINE: "the deadline",
    COST_CEILING: "the price ceiling",
    POLICY_MAX_JOB_USD: "the most that the policy lets a job cost",
    OBJECTS: "the requests that its objects take",
    INSTANCE_QUOTA: "the number of instances in",
    VCPU_QUOTA: "the number of vCPUs in",
    STORAGE_READ: "what can be read from the store in",
    STORAGE_WRITE: "what can be written to the store in",
    PROCESSOR: "what the gateways' processors carry in",
    EGRESS_LIMIT: "what the instances can send from",
    INGRESS_LIMIT: "what the instances can receive in",
    CONNECTION_LIMIT_OUT: "the connections of the instances out of",
    CONNECTION_LIMIT_IN: "the connections of the instances into",
}


def describe_limit(name: str) -> str:
    """A name of `TransferPlan.binding` in words, with the name itself."""
    kind, _, tag = name.partition(" ")
    words = _WORDS.get(name) or f"{_WORDS.get(kind, kind)} {tag}".rstrip()
    return f"{words} ({name if name in _WORDS else kind})"


# ---------------------------------------------------------------- what binds


def binding_limits(request: PlanRequest, overlay: Overlay) -> Names:
    """Names of the limits that the overlay has used up: `limit region`.

    The rate and connection limits of a region bind only where its quota allows no more instances.
    """
    ends = request.src, request.destinations
    names = list(binding_stores(request, overlay.throughput_gbps))
    bound = request.object_bound(overlay)
    if bound.what and bound.seconds >= (request.transfer_s_of(overlay) or 0.0) * (1 - _TIGHT):
        names.insert(0, OBJECTS)
    for tag, count in overlay.instances.items():
        kind = overlay.types[tag]
        quota = quota_of(request.grid, tag, kind, request.limits)
        needed = instances_needed(tag, kind, overlay.flows, overlay.connections)
        tight = [name for name, need in needed.items() if need >= count * (1 - _TIGHT)]
        if tight and count >= quota.instances:
            processor = kind.processor_gbps(*roles_in(tag, *ends)) * (1 - _TIGHT)
            by_processor = {EGRESS_LIMIT: kind.egress_gbps, INGRESS_LIMIT: kind.ingress_gbps}
            tight = [
                PROCESSOR if by_processor.get(name, 0.0) >= processor else name for name in tight
            ]
            names.extend(f"{name} {tag}" for name in dict.fromkeys((quota.name, *tight)))
    return tuple(names)


def binding_stores(request: PlanRequest, gbps: float) -> Names:
    """The stores at the ends whose limit is at most this rate."""
    return tuple(name for name, most in request.store_gbps.items() if most * (1 - _TIGHT) <= gbps)


def limits_reached(
    request: PlanRequest, overlay: Overlay, tags: Sequence[str], price: Mapping[str, Floats]
) -> Names:
    """Names of the limits that the largest plan has used up, or that bind the relaxation.

    Args:
        price: name of a limit -> its shadow prices, by region for a limit of regions.
    """
    return binding_limits(request, overlay) or tuple(
        f"{name} {tag}"
        for name, prices in price.items()
        for tag, value in zip(tags, prices, strict=False)
        if len(prices) == len(tags) and value > _WORTH
    )


# ---------------------------------------------------------------- why there is no plan


def goal_infeasible(problem: PlanProblem, request: PlanRequest) -> PlanInfeasible:
    """The error for a goal that no plan reaches: the binding limits and the largest rate."""
    # Loads the solver, which errors within one region do not need.
    from skyplane_orchestration.planner.decode import decode
    from skyplane_orchestration.planner.search.optimum import largest_throughput

    largest = largest_throughput(problem)
    if largest is None:
        return no_route(request.grid, request.src, request.destinations)
    solution, relaxed = largest
    most = rounded_down(solution.throughput_gbps)
    overlay = decode(solution)
    names = limits_reached(request, overlay, problem.tags, relaxed.limit_price)
    words = [_with_count(name, request, overlay) for name in names]
    return PlanInfeasible(
        f"no plan moves {problem.goal_gbps:g} Gbit/s from {request.route}; the most is"
        f" {most:g} Gbit/s. Binding limits: {', '.join(words)}. {advice(names, request)}",
        binding=names,
        most_gbps=most,
    )


def advice(names: Names, request: PlanRequest, first: str = "ask for less") -> str:
    """What helps against these limits: the search has all types and relays that it may have."""
    kinds = {name.partition(" ")[0] for name in names}
    ways = [first]
    if OBJECTS in kinds and not kinds & {INSTANCE_QUOTA, VCPU_QUOTA}:
        # The requests of the objects take the time, whatever the fleet.
        return first.capitalize()
    if kinds & {INSTANCE_QUOTA, VCPU_QUOTA}:
        ways.append("allow more instances")
    if kinds & {STORAGE_READ, STORAGE_WRITE}:
        ways.append("use a faster store")
    if request.limits.instance_types:
        ways.append("leave the instance types to the planner")
    if request.limits.max_relays is not None:
        ways.append("let more regions relay")
    return " or ".join(ways).capitalize()


def no_route(grid: Grid, src: str, destinations: Sequence[str]) -> PlanInfeasible:
    """The error when no path joins the ends."""
    for tag in (src, *destinations):
        cloud = tag.partition(":")[0]
        kinds = [kind for kind in grid.types if kind.cloud == cloud]
        least_vcpus = min((kind.vcpus for kind in kinds), default=1)
        for quota in grid.account.get(tag, ()):
            free = least_vcpus if quota.free_vcpus is None else quota.free_vcpus
            is_for_all = all(quota.limits(kind.name) for kind in kinds)
            if is_for_all and (quota.instances == 0 or free < least_vcpus):
                return no_instance(tag, Quota(INSTANCE_QUOTA, 0, quota.name))
    route = f"{src} to {', '.join(destinations)}"
    return PlanInfeasible(
        f"there is no way from {route}: the grid has no usable edge, an end may have no instance,"
        " or the policy allows no relay",
        binding=(NO_ROUTE,),
        most_gbps=0.0,
    )


def no_instance(tag: str, quota: Quota) -> PlanInfeasible:
    """The error when a quota of the account allows no instance at an end."""
    return PlanInfeasible(
        f"no gateway can run in {tag}, by {quota.owner}; raise or extend that, or give the"
        " location another region",
        binding=(f"{quota.name} {tag}",),
        most_gbps=0.0,
    )


def _with_count(name: str, request: PlanRequest, overlay: Overlay) -> str:
    """A limit in words, and for a quota the number of instances that it allowed."""
    kind, _, tag = name.partition(" ")
    if kind not in (INSTANCE_QUOTA, VCPU_QUOTA):
        return describe_limit(name)
    count = f"{describe_limit(name)}: {counted(overlay.instances.get(tag, 0), 'instance')}"
    if tag not in overlay.types:
        return count
    owner = quota_of(request.grid, tag, overlay.types[tag], request.limits).owner
    return f"{count} ({owner})" if owner else count


def deadline_infeasible(
    request: PlanRequest, asked_s: float, least_s: float, names: Names
) -> PlanInfeasible:
    """The error for a deadline that no plan meets; `least_s` is the earliest that one meets."""
    least = rounded_up(least_s)
    bound = f"; {request.object_bound().sentence}" if names[:1] == (OBJECTS,) else ""
    return PlanInfeasible(
        f"no plan from {request.route} is done in {asked_s:g} s, including the time that gateways"
        f" take to start; the earliest deadline is {least:g} s{bound}."
        f" {advice(names, request, 'allow more time')}",
        binding=(DEADLINE, *names),
        least_s=least,
    )


def price_ceiling_infeasible(route: str, asked: float, least_usd_per_gb: float) -> PlanInfeasible:
    """The error for a price per GB that every plan exceeds."""
    least = rounded_up(least_usd_per_gb)
    return PlanInfeasible(
        f"no plan from {route} costs {asked:g} USD per GB or less;"
        f" the cheapest costs {least:g} USD per GB. Raise the ceiling",
        binding=(COST_CEILING,),
        least_usd_per_gb=least,
    )


def total_ceiling_infeasible(
    route: str, asked_usd: float, least_usd: float, *, is_policy: bool
) -> PlanInfeasible:
    """The error for a total that every plan exceeds: the objective's ceiling or the policy's."""
    least = rounded_up(least_usd)
    asked = f"{asked_usd:g}"
    whose = "{max_job_usd} is {asked}" if is_policy else "{asked} is allowed"
    return PlanInfeasible(
        with_fields(
            "no plan from {route} meets the limit on its total cost in USD: " + whose + ", the "
            "cheapest costs {least:g} USD with boot, minimum billing and requests. Raise the "
            "{what} or move less",
            route=route,
            asked=asked,
            least=least,
            what="policy" if is_policy else "ceiling",
        ),
        binding=(POLICY_MAX_JOB_USD if is_policy else COST_CEILING,),
        least_usd=least,
    )
