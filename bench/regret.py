"""The cost of planning with modelled rates, judged by a measured grid.

For each of the seed's ordered pairs of regions:

1. The model is fitted to the measured grid without any rate or round trip at either end.
2. The model makes a grid of the same regions, prices and instances (each cloud's default type).
3. On that grid the plan has the most throughput under a ceiling: 1.02 to 1.8 times (also drawn) the
   price of the cheapest plan there. Ties go to the cheapest plan.
4. The measured grid gives the flow through the plan's edges and instances. Flow and connections may
   be distributed differently; no edge and no instance is added.
5. The share is that flow over the largest flow of any plan on the measured grid at the price per GB
   that the plan really has there, with its instances paid whether used or not.

All steps use the relaxation, where every rate scales with the instance limit. So the share does not
depend on an instance limit that is equal everywhere. It is at most 1, because the plan is one of
those it is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.cross_validation import modelled_grid, unseen
from bench.fit_throughput_model import fit
from bench.report import Case
from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_ceiling,
    cost_per_second,
)
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.solution import Relaxation
from skyplane_orchestration.planner.solve import relax

SEED = 20220129
PAIRS = 200
#: A ceiling as a multiple of the price of the cheapest plan at any rate.
CEILING_SHARES = (1.02, 1.8)
FLOOR_MEDIAN, GOAL_MEDIAN = 0.96, 0.98
FLOOR_TENTH, GOAL_TENTH = 0.82, 0.88
#: A rate at which no limit binds: a plan there is the cheapest at any rate.
LEAST_GBPS = 0.1
#: Flows below this (Gbit/s) are no edge of a plan.
LEAST_FLOW_GBPS = 1e-6
#: Weight of a plan's cost at the ceiling against its throughput.
MONEY_WEIGHT = 1e-4


@dataclass(frozen=True, slots=True)
class Job:
    """One ordered pair and the ceiling, as a multiple of the cheapest price."""

    src: str
    dst: str
    ceiling_share: float


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one plan: the modelled rate, the reached rate, and the best rate."""

    job: Job
    planned_gbps: float
    reached_gbps: float
    best_gbps: float

    @property
    def share(self) -> float:
        return self.reached_gbps / self.best_gbps


def seeded_jobs(tags: Sequence[str], count: int = PAIRS, seed: int = SEED) -> list[Job]:
    """The first `count` jobs of the seed's sequence."""
    chooser = random.Random(seed)
    low, high = CEILING_SHARES
    jobs = []
    for _ in range(count):
        src, dst = chooser.sample(tags, 2)
        jobs.append(Job(src, dst, low + chooser.random() * (high - low)))
    return jobs


def held_out_grid(measured: Grid, *tags: str) -> Grid:
    """The measured grid with every rate modelled, fitted without what touches the regions."""
    held: Mask = np.isin(measured.tags, tags)
    return modelled_grid(measured, fit(unseen(measured, held)))


def problem_on(grid: Grid, job: Job) -> PlanProblem:
    """The job at any rate, with each cloud's default instances: one option per region."""
    clouds = {region.cloud for region in grid.regions}
    defaults = Limits(instance_types={cloud: grid.instance_type(cloud).name for cloud in clouds})
    return build_problem(grid, job.src, job.dst, goal_gbps=0.0, limits=defaults)


def most_flow(problem: PlanProblem, usd_per_gbit: float) -> Floats:
    """The cost vector for the most throughput, and then for the least money.

    The money of a Gbit/s at the ceiling weighs little against one Gbit/s: a plan gives up
    throughput only where it costs more than 1 / MONEY_WEIGHT times the price.
    """
    cost = cost_per_second(problem) * (MONEY_WEIGHT / usd_per_gbit)
    cost[columns_of(problem).throughput] = -1.0
    return cost


def most_for_price(problem: PlanProblem, usd_per_gbit: float) -> Relaxation:
    """The most throughput at no more than the price per Gbit, and the cheapest such plan."""
    return _solved(
        relax(
            problem,
            most_flow(problem, usd_per_gbit),
            extra=[cost_ceiling(problem, usd_per_gbit)],
        )
    )


def cheapest_usd_per_gbit(problem: PlanProblem) -> float:
    """The price of the cheapest plan at any rate."""
    slowly = problem.with_goal(LEAST_GBPS, LEAST_GBPS)
    return _solved(relax(slowly, cost_per_second(slowly))).objective / LEAST_GBPS


def reached(
    truth: PlanProblem, plan: Relaxation, problem: PlanProblem, usd_per_gbit: float
) -> tuple[float, float]:
    """Gbit/s through a plan's edges and instances on another grid, and USD per Gbit of it."""
    used = plan.flow_gbps > LEAST_FLOW_GBPS
    edges = set(zip(problem.tail[used], problem.head[used], strict=True))
    kept = [edge in edges for edge in zip(truth.tail, truth.head, strict=True)]
    own = replace(truth.with_edges(np.array(kept)), quota=np.maximum(plan.instances, 0.0))
    # The plan's instances are paid for, whatever flows through them.
    paid = replace(own, usd_per_s=np.zeros_like(own.usd_per_s))
    found = _solved(relax(paid, most_flow(paid, usd_per_gbit)))
    usd_per_s = found.flow_gbps @ own.usd_per_gbit + own.quota @ own.usd_per_s
    return found.throughput_gbps, float(usd_per_s) / found.throughput_gbps


def judge(measured: Grid, planned_on: Grid, job: Job) -> Judged:
    """Plans one job on one grid and evaluates the plan on the measured one.

    Raises SolverFailed when no path joins source and sink.
    """
    problem = problem_on(planned_on, job)
    truth = problem_on(measured, job)
    ceiling = cheapest_usd_per_gbit(problem) * job.ceiling_share
    plan = most_for_price(problem, ceiling)
    reached_gbps, usd_per_gbit = reached(truth, plan, problem, ceiling)
    best = most_for_price(truth, usd_per_gbit)
    return Judged(job, plan.throughput_gbps, reached_gbps, max(best.throughput_gbps, reached_gbps))


def regrets(
    measured: Grid,
    jobs: Sequence[Job],
    grid_for: Callable[[Grid, str, str], Grid] = held_out_grid,
) -> list[Judged]:
    """Every job planned on the grid that `grid_for` gives for its ends."""
    return [judge(measured, grid_for(measured, job.src, job.dst), job) for job in jobs]


def regret_cases(measured: Grid, count: int | None = None) -> list[Case]:
    """Median and tenth percentile over the seed's pairs, or over the first `count` of them.

    Floors and goals are for the whole list.
    """
    found = regrets(measured, seeded_jobs(measured.tags, count or PAIRS))
    shares = np.array([one.share for one in found])
    what = f"of {len(found)} pairs, both ends held out: flow over the best at no higher price"
    whole = len(found) == PAIRS
    return [
        Case(
            f"regret: {name} {what}",
            float(np.quantile(shares, quantile)),
            "of the best",
            floor=floor if whole else None,
            goal=goal if whole else None,
        )
        for name, quantile, floor, goal in (
            ("median", 0.5, FLOOR_MEDIAN, GOAL_MEDIAN),
            ("tenth percentile", 0.1, FLOOR_TENTH, GOAL_TENTH),
        )
    ]


def _solved(found: Relaxation | None) -> Relaxation:
    if found is None:
        raise SolverFailed("the regret of a plan cannot be told: no way from source to sink")
    return found
