"""From real connections to whole ones, without a solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, Integers

#: Share of one connection that counts as rounding, not as need.
_ROUNDING = 1e-6


def with_whole_connections(solution: Integers) -> Integers | None:
    """The same flows and instances with every M rounded up; None where a limit stops that.

    Args:
        solution: one with real connections (none counted), N integer.
    """
    problem = solution.problem
    flows = np.where(solution.flow_gbps > FLOW_TOLERANCE, solution.flow_gbps, 0.0)
    needed = np.ceil(flows / problem.gbps_per_connection - _ROUNDING)
    limit = np.zeros(problem.region_count)
    np.add.at(limit, problem.option_region, solution.instances * problem.connection_limit)
    for ends in (problem.tail, problem.head):
        used = np.bincount(ends, weights=needed, minlength=problem.region_count)
        if (used > limit + _ROUNDING).any():
            return None
    return replace(solution, connections=needed)
