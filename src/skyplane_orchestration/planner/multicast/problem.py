"""The problem with one source and several destinations, and one instance type per region.

Relays copy bytes: an edge carries each byte at most once, for all destinations behind it. So the
unit of flow is not a path but a distribution tree (an arborescence from the source that reaches
every destination) with a rate x_T:

    sum x_T = G        F_uv = sum of x_T over the trees with the edge uv

(4b) and (4f) to (4j) hold for F as with one destination. A destination that forwards pays with its
own egress, connections and instances. With one destination trees are paths, and the model is the
paper's.

The problem is a `PlanProblem` whose option v is the type of region v: regions that may have no
instance are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import ANY_REGION, NO_LIMITS, Limits, Policy
from skyplane_orchestration.planner.infeasibility import no_route
from skyplane_orchestration.planner.problem import PlanProblem, build_problem

#: The search looks at every subset of the destinations, so their number is limited.
MOST_DESTINATIONS = 8


def build_multicast_problem(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    *,
    goal_gbps: float,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> PlanProblem:
    """The problem of one source and several destinations on one grid.

    Raises as `require_ends`, and PlanInfeasible when the policy excludes an end or the quotas allow
    no instance there.
    """
    require_ends(grid, src, destinations)
    problem = build_problem(
        grid,
        src,
        *destinations,
        goal_gbps=goal_gbps,
        limits=limits,
        policy=policy,
        has_choice=False,
    )
    has_option = np.bincount(problem.option_region, minlength=problem.region_count) > 0
    if not has_option[list(problem.ends)].all():
        raise no_route(grid, src, destinations)
    return problem.with_regions(has_option)


def require_ends(grid: Grid, src: str, destinations: Sequence[str]) -> None:
    """Raises UnknownRegion, and ConfigurationInvalid for bad destinations.

    Destinations are bad if there are none or too many, or if they repeat or include the source.
    """
    for tag in (src, *destinations):
        grid.index_of(tag)
    if not 1 <= len(destinations) <= MOST_DESTINATIONS:
        raise ConfigurationInvalid(
            f"give 1 to {MOST_DESTINATIONS} destinations, not {len(destinations)}"
        )
    twice = [tag for tag in dict.fromkeys(destinations) if destinations.count(tag) > 1]
    if twice:
        raise ConfigurationInvalid(f"destination {', '.join(twice)} is given more than once")
    if src in destinations:
        raise ConfigurationInvalid(f"{src} is the source and cannot be a destination as well")
