"""Removes paths that carry next to nothing.

An optimum may send its last hundredth over an extra relay, to spend the last cent of a ceiling or
to reach a floor exactly. Such a relay is one more region that can fail.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.model.job import Objective
from skyplane_orchestration.planner.job_cost import Candidate
from skyplane_orchestration.planner.objectives import ObjectiveSearch
from skyplane_orchestration.planner.overlay import Overlay

#: The least share of the rate that a path carries.
LEAST_SHARE: Final = 0.01
#: Share of that least flow that counts as rounding.
_ROUNDING: Final = 1e-9


def thin_paths(overlay: Overlay) -> list[tuple[str, ...]]:
    """The paths that carry less than `LEAST_SHARE` of the rate."""
    least = overlay.throughput_gbps * LEAST_SHARE * (1 - _ROUNDING)
    return [path for path, flow in overlay.paths.items() if flow < least]


def remove_thin_paths(search: ObjectiveSearch, objective: Objective, found: Candidate) -> Candidate:
    """The candidate, or the best one over the edges of its other paths if it has thin paths.

    A candidate whose floor needs the flow of the thin paths stays as it is.
    """
    thin = set(thin_paths(found.overlay))
    if not thin:
        return found
    paths = found.overlay.paths
    kept = {edge for path in paths if path not in thin for edge in pairwise(path)}
    edges = search.problem.by_edge(search.problem.capacity_gbps)
    narrow = search.problem.with_edges(np.array([edge in kept for edge in edges]))
    try:
        return replace(search, problem=narrow).best(objective).candidate
    except (PlanInfeasible, SolverFailed):
        return found
