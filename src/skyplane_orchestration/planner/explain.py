"""In words: which limits bind, and why there is no plan."""

from __future__ import annotations

from collections.abc import Mapping

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import InstanceType
from skyplane_orchestration.planner.decode import Overlay
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search import largest_throughput

THROUGHPUT_FLOOR = "throughput_floor"
INSTANCE_QUOTA = "instance_quota"
POLICY = "policy"
NO_ROUTE = "no_route"
DEADLINE = "deadline"
COST_CEILING = "cost_ceiling"

_TIGHT = 1e-4
_WORTH = 1e-6


def binding_limits(
    overlay: Overlay, types: Mapping[str, InstanceType], quota: Mapping[str, int], goal_gbps: float
) -> tuple[str, ...]:
    """Names of the limits that the overlay has used up: `limit region`, and the floor itself.

    A region's rate and connection limits grow with its instances, so they bind only where
    the quota allows no more of them.
    """
    names: list[str] = []
    if overlay.throughput_gbps <= goal_gbps * (1 + _TIGHT):
        names.append(THROUGHPUT_FLOOR)
    for tag, count in overlay.instances.items():
        if count < quota[tag]:
            continue
        kind = types[tag]
        outward = [edge for edge in overlay.flows if edge[0] == tag]
        inward = [edge for edge in overlay.flows if edge[1] == tag]
        uses = {
            "egress_limit": (sum(overlay.flows[e] for e in outward), kind.egress_gbps),
            "ingress_limit": (sum(overlay.flows[e] for e in inward), kind.ingress_gbps),
            "connection_limit_out": (
                sum(overlay.connections[e] for e in outward),
                kind.connection_limit,
            ),
            "connection_limit_in": (
                sum(overlay.connections[e] for e in inward),
                kind.connection_limit,
            ),
        }
        tight = [
            f"{name} {tag}"
            for name, (used, each) in uses.items()
            if used >= each * count * (1 - _TIGHT)
        ]
        names.extend([f"{INSTANCE_QUOTA} {tag}", *tight] if tight else [])
    return tuple(names)


def infeasible(problem: PlanProblem) -> PlanInfeasible:
    """The error for a goal that nothing reaches: what binds, and how much would go."""
    src, dst = problem.tags[problem.src], problem.tags[problem.dst]
    largest = largest_throughput(problem)
    if largest is None:
        return PlanInfeasible(
            f"there is no way from {src} to {dst}: the grid has no usable edge, an end may"
            " have no instance, or the policy leaves no relay",
            binding=(NO_ROUTE,),
            most_gbps=0.0,
        )
    integers, relaxed = largest
    tight = [
        (name, tag)
        for name, prices in relaxed.region_price.items()
        for tag, price in zip(problem.tags, prices, strict=False)
        if len(prices) == problem.region_count and price > _WORTH
    ]
    regions = list(dict.fromkeys(tag for _, tag in tight))
    limits = {tag: int(count) for tag, count in zip(problem.tags, problem.quota, strict=True)}
    most = _rounded_down(integers.throughput_gbps)
    held = ", ".join(f"{name} of {tag} ({limits[tag]} instances)" for name, tag in tight)
    return PlanInfeasible(
        f"no plan moves {problem.goal_gbps:g} Gbit/s from {src} to {dst}; the most is"
        f" {most:g} Gbit/s. What binds: {held}. Ask for less, raise the instance limit,"
        " choose larger instance types, or let more regions relay",
        binding=(
            *(f"{name} {tag}" for name, tag in tight),
            *(f"{INSTANCE_QUOTA} {tag}" for tag in regions),
        ),
        most_gbps=most,
    )


def _rounded_down(gbps: float) -> float:
    """A rate that a second request for it reaches: a hair below the solver's."""
    digits = 10**4
    return int(gbps * digits) / digits
