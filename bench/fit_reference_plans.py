"""Solves the bench's random problems with the full model: `reference_plans.json`.

    python -m bench.fit_reference_plans GRID_DIR > bench/reference_plans.json

The solver gets the model of the paper over all regions, N and M integer, without the planner's
search. `bound` is the solver's bound. A problem without a plan within the time limit is replaced by
the next.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.planner import build_problem, plan
from skyplane_orchestration.planner.formulation import columns_of, cost_ceiling, cost_per_second
from skyplane_orchestration.planner.solve import solve_integers
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_gbit_to_usd_per_gb

logger = logging.getLogger(__name__)

SEED = 20220129
GOALS, CEILINGS = 32, 12
INSTANCE_LIMITS = (1, 8)
#: A goal as a share of what the ends' instances may send and receive.
SHARES = (0.4, 0.95)
#: A ceiling as a multiple of the price of the cheapest plan at any rate.
CEILING_SHARES = (1.02, 1.8)
LEAST_GBPS = 0.1
RELATIVE_GAP = 1e-4
TIME_LIMIT_S = 25.0
#: What a cost is scaled to, far above the absolute tolerances of the solver.
SCALE = 1000.0

#: One problem and its optimum, as it stands in the document.
Reference = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One random job: its ends, its instance limit, and a number from 0 to 1 for the rest."""

    src: str
    dst: str
    instance_limit: int
    position: float

    def between(self, limits: tuple[float, float]) -> float:
        return limits[0] + self.position * (limits[1] - limits[0])


def draw(chooser: random.Random, grid: Grid) -> Drawn:
    src, dst = chooser.sample(grid.tags, 2)
    return Drawn(src, dst, chooser.randint(*INSTANCE_LIMITS), chooser.random())


def at_goal(grid: Grid, job: Drawn) -> Reference | None:
    """The least cost at a goal; None if no plan was found."""
    limit = job.instance_limit
    problem = build_problem(
        grid, job.src, job.dst, goal_gbps=0.0, limits=Limits(instance_limit=limit)
    )
    goal = round(job.between(SHARES) * problem.most_gbps, 3)
    problem = problem.with_goal(goal, goal)
    cost = cost_per_second(problem)
    scale = SCALE / (goal * usd_per_gb_to_usd_per_gbit(0.1))
    found = solve_integers(
        problem, cost * scale, relative_gap=RELATIVE_GAP, time_limit_s=TIME_LIMIT_S
    )
    if found is None:
        return None
    return {
        "src": job.src,
        "dst": job.dst,
        "instance_limit": limit,
        "goal_gbps": goal,
        "usd_per_gb": usd_per_gbit_to_usd_per_gb(found.usd_per_gbit),
        "bound": usd_per_gbit_to_usd_per_gb(found.bound / scale / goal),
    }


def under_ceiling(grid: Grid, job: Drawn) -> Reference | None:
    """The most throughput under a price; None if no plan was found."""
    limit = job.instance_limit
    least = plan(
        grid, job.src, job.dst, MinimizeCost(LEAST_GBPS), limits=Limits(instance_limit=limit)
    )
    ceiling = round(least.cost.usd_per_gb * job.between(CEILING_SHARES), 4)
    problem = build_problem(
        grid, job.src, job.dst, goal_gbps=LEAST_GBPS, limits=Limits(instance_limit=limit)
    )
    columns = columns_of(problem)
    cost = cost_per_second(problem) * 0.0
    cost[columns.throughput] = -1.0
    found = solve_integers(
        problem,
        cost,
        extra=[cost_ceiling(problem, usd_per_gb_to_usd_per_gbit(ceiling))],
        relative_gap=RELATIVE_GAP,
        time_limit_s=TIME_LIMIT_S,
    )
    if found is None:
        return None
    return {
        "src": job.src,
        "dst": job.dst,
        "instance_limit": limit,
        "ceiling_usd_per_gb": ceiling,
        "throughput_gbps": found.throughput_gbps,
        "bound": -found.bound,
    }


def references(
    grid: Grid, seed: int, count: int, solve: Callable[[Grid, Drawn], Reference | None]
) -> list[Reference]:
    """The first `count` problems of the seed's sequence that the full model solves."""
    chooser = random.Random(seed)
    solved: list[Reference] = []
    while len(solved) < count:
        job = draw(chooser, grid)
        try:
            found = solve(grid, job)
        except (SolverFailed, PlanInfeasible) as error:
            logger.warning("left out %s -> %s: %s", job.src, job.dst, error)
            continue
        if found is None:
            logger.warning("left out %s -> %s: infeasible", job.src, job.dst)
            continue
        logger.info("%d of %d: %s", len(solved) + 1, count, found)
        solved.append(found)
    return solved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", help="directory of a measured grid")
    grid = load_grid(parser.parse_args().grid)
    logging.basicConfig(level=logging.INFO)
    document = {
        "grid": grid.name,
        "as_of": grid.as_of,
        "goals": references(grid, SEED, GOALS, at_goal),
        "ceilings": references(grid, SEED + 1, CEILINGS, under_ceiling),
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
