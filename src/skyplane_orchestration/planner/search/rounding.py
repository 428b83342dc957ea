"""Rounds real connections up to whole ones, without the solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, IntegerSolution

#: Share of one connection that counts as rounding.
_ROUNDING: Final = 1e-6


def round_connections_up(solution: IntegerSolution) -> IntegerSolution | None:
    """The same flows and instances with every M rounded up; None when that breaks a limit.

    Args:
        solution: N integer, M real.
    """
    problem = solution.problem
    flows = np.where(solution.flow_gbps > FLOW_TOLERANCE, solution.flow_gbps, 0.0)
    whole = np.ceil(flows / problem.gbps_per_connection - _ROUNDING)
    limit = np.zeros(problem.region_count)
    np.add.at(limit, problem.option_region, solution.instances * problem.connection_limit)
    for ends in (problem.tail, problem.head):
        used = np.bincount(ends, weights=whole, minlength=problem.region_count)
        if (used > limit + _ROUNDING).any():
            return None
    return replace(solution, connections=whole)
