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
from skyplane_orchestration.planner.candidate import Candidate
from skyplane_orchestration.planner.distance_to_bound import gap_of
from skyplane_orchestration.planner.objectives import ObjectiveSearch, objective_value

#: The least share of the rate that a path carries.
LEAST_SHARE: Final = 0.01
#: A thin path that is worth more than this share of the objective stays.
MOST_COST: Final = 0.0035
#: Share of that least flow that counts as rounding.
_ROUNDING: Final = 1e-9


def remove_thin_paths(search: ObjectiveSearch, objective: Objective, found: Candidate) -> Candidate:
    """The candidate, or the best one over the edges of its other paths if it has thin paths.

    A candidate stays as it is if its floor needs the thin paths, or if they are worth their place.
    """
    paths, least = found.overlay.paths, found.gbps * LEAST_SHARE * (1 - _ROUNDING)
    if all(flow >= least for flow in paths.values()):
        return found
    kept = {edge for path, flow in paths.items() if flow >= least for edge in pairwise(path)}
    edges = search.problem.by_edge(search.problem.capacity_gbps)
    narrow = search.problem.with_edges(np.array([edge in kept for edge in edges]))
    try:
        without = replace(search, problem=narrow).best(objective).candidate
    except (PlanInfeasible, SolverFailed):
        return found
    value, best = objective_value(objective, without), objective_value(objective, found)
    return found if gap_of(objective, value, best) > MOST_COST else without
