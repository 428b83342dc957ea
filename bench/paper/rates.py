"""Largest throughput by the relaxation of the planner's model, N and M real.

It takes a few hundredths of a second, and is an upper bound for integers.
"""

from __future__ import annotations

import numpy as np

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
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
    instance_limit: int = 1,
    max_usd_per_gb: float | None = None,
    instances_in_all: int | None = None,
) -> float:
    """The largest throughput between two regions, in the unit of the grid's rates.

    Args:
        instance_limit: instances in each region.
        max_usd_per_gb: ceiling on egress and instances, in the unit of the grid's prices.
        instances_in_all: instances in all regions together.

    Returns 0 without a path.
    """
    problem = build_problem(
        grid, src, dst, goal_gbps=0.0, limits=Limits(instance_limit=instance_limit)
    )
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = HOP_WEIGHT
    cost[columns.throughput] = -1.0
    extra = []
    if max_usd_per_gb is not None:
        extra.append(cost_ceiling(problem, usd_per_gb_to_usd_per_gbit(max_usd_per_gb)))
    if instances_in_all is not None:
        extra.append(_total_instances(problem, instances_in_all))
    relaxed = relax(problem, cost, extra=extra)
    return 0.0 if relaxed is None else relaxed.throughput_gbps


def _total_instances(problem: PlanProblem, most: int) -> RowBlock:
    """sum of N_v <= most"""
    columns = columns_of(problem)
    counted = np.zeros(columns.count)
    counted[columns.instances] = 1.0
    return inequality_row("total_instances", counted, float(most))
