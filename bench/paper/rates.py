"""Largest throughput by the relaxation of the planner's model, N and M real.

It takes a few hundredths of a second, and is an upper bound for integers.
"""

from __future__ import annotations

import numpy as np

from bench.paper.readings import ONE_INSTANCE
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner import build_problem
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_ceiling,
    inequality_row,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solve import HOP_WEIGHT, relax
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit


def relaxed_most_gbps(
    grid: Grid,
    src: str,
    dst: str,
    *,
    max_usd_per_gb: float | None = None,
    instances_in_all: int | None = None,
    throttle: tuple[str, float] | None = None,
) -> float:
    """The largest throughput between two regions, one instance in each, in the grid's unit.

    Args:
        max_usd_per_gb: ceiling on egress and instances, in the unit of the grid's prices.
        instances_in_all: instances in all regions together.
        throttle: a cloud, and the most that one of its instances sends to other clouds.

    Returns 0 without a path.
    """
    problem = build_problem(grid, src, dst, goal_gbps=0.0, limits=ONE_INSTANCE)
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = HOP_WEIGHT
    cost[columns.throughput] = -1.0
    extra = []
    if max_usd_per_gb is not None:
        extra.append(cost_ceiling(problem, usd_per_gb_to_usd_per_gbit(max_usd_per_gb)))
    if instances_in_all is not None:
        extra.append(_total_instances(problem, instances_in_all))
    if throttle is not None:
        extra += _throttles(problem, *throttle)
    relaxed = relax(problem, cost, extra=extra)
    return 0.0 if relaxed is None else relaxed.throughput_gbps


def _total_instances(problem: PlanProblem, most: int) -> RowBlock:
    """sum of N_v <= most"""
    columns = columns_of(problem)
    counted = np.zeros(columns.count)
    counted[columns.instances] = 1.0
    return inequality_row("total_instances", counted, float(most))


def _throttles(problem: PlanProblem, cloud: str, most_gbps: float) -> list[RowBlock]:
    """sum of F_uv over v in other clouds <= most_gbps * N_u, for each region u of the cloud"""
    columns = columns_of(problem)
    is_inside = np.array([tag.startswith(f"{cloud}:") for tag in problem.tags])
    rows = []
    for region in np.flatnonzero(is_inside):
        row = np.zeros(columns.count)
        row[columns.flow] = (problem.tail == region) & ~is_inside[problem.head]
        row[columns.instances] = np.where(problem.option_region == region, -most_gbps, 0.0)
        rows.append(inequality_row("throttle", row, 0.0))
    return rows
