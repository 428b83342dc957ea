"""Removes paths that carry next to nothing.

An optimum may send its last hundredth over an extra relay, to spend the last cent of a ceiling or
to reach a floor exactly. Such a relay is one more region that can fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.model.job import MaximizeThroughput, Objective
from skyplane_orchestration.planner.decode import ROUNDING
from skyplane_orchestration.planner.job_cost import Candidate, priced
from skyplane_orchestration.planner.objectives import ObjectiveSearch, objective_value
from skyplane_orchestration.planner.overlay import Overlay, flows_over, instances_needed
from skyplane_orchestration.planner.problem import PlanProblem

#: The least share of the rate that a path carries.
LEAST_SHARE: Final = 0.01
#: Share of that least flow that counts as rounding.
_ROUNDING: Final = 1e-9
#: A plan on fewer edges may again have a thin path.
_ROUNDS: Final = 4


def thin_paths(overlay: Overlay) -> list[tuple[str, ...]]:
    """The paths that carry less than `LEAST_SHARE` of the rate."""
    least = overlay.throughput_gbps * LEAST_SHARE * (1 - _ROUNDING)
    return [path for path, flow in overlay.paths.items() if flow < least]


def remove_thin_paths(search: ObjectiveSearch, objective: Objective, found: Candidate) -> Candidate:
    """The candidate, or an equally valid one without thin paths.

    It is the better of two alternatives: the best plan over the edges of the other paths, or, for a
    least cost, the same paths with the thin ones filled up. If limits allow neither, the candidate
    stays as it is.
    """
    best = found
    for _ in range(_ROUNDS):
        if not thin_paths(best.overlay):
            return best
        alternatives = list(_alternatives(search, objective, best))
        if not alternatives:
            return best
        pick = max if isinstance(objective, MaximizeThroughput) else min
        best = pick(alternatives, key=lambda one: objective_value(objective, one))
    return best


def _alternatives(
    search: ObjectiveSearch, objective: Objective, found: Candidate
) -> Iterator[Candidate]:
    narrow = replace(search, problem=_without_thin_edges(search.problem, found.overlay))
    # Infeasible when the floor needs the flow of the thin paths.
    with suppress(PlanInfeasible, SolverFailed):
        yield narrow.best(objective).candidate
    if isinstance(objective, MaximizeThroughput):
        return
    for whole in (False, True):
        filled = _fill_thin_paths(search.problem, found.overlay, whole_connections=whole)
        if _fits(filled):
            candidate = priced(search.request, filled)
            if search.is_within_policy(candidate):
                yield candidate


def _without_thin_edges(problem: PlanProblem, overlay: Overlay) -> PlanProblem:
    thin = set(thin_paths(overlay))
    kept = {edge for path in overlay.paths if path not in thin for edge in pairwise(path)}
    edges = problem.by_edge(problem.capacity_gbps)
    return problem.with_edges(np.array([edge in kept for edge in edges]))


def _fill_thin_paths(problem: PlanProblem, overlay: Overlay, *, whole_connections: bool) -> Overlay:
    """The same paths at the same rate, with the thin ones filled from the largest.

    `whole_connections`: fill a path to the capacity of its connections, and take whole connections
    from the largest, which matters where an end uses all that it has.
    """
    rates = problem.by_edge(problem.gbps_per_connection)
    paths = dict(overlay.paths)
    for path in thin_paths(overlay):
        share = overlay.throughput_gbps * LEAST_SHARE
        if whole_connections:
            slowest = min(rates[edge] for edge in pairwise(path))
            share = math.ceil(share / slowest) * slowest
        largest = max(paths, key=lambda one: paths[one])
        paths[largest] -= share - paths[path]
        paths[path] = share
    flows = flows_over((pairwise(path), share) for path, share in paths.items())
    return replace(
        overlay,
        paths=dict(sorted(paths.items(), key=lambda item: (-item[1], item[0]))),
        flows=flows,
        connections={
            edge: max(1, math.ceil(flow / rates[edge] - ROUNDING)) for edge, flow in flows.items()
        },
    )


def _fits(overlay: Overlay) -> bool:
    """Whether the overlay's instances allow it, (4f) to (4i), and every path carries flow."""
    if min(overlay.paths.values()) <= 0:
        return False
    return all(
        need <= count * (1 + ROUNDING)
        for tag, count in overlay.instances.items()
        for need in instances_needed(
            tag, overlay.types[tag], overlay.flows, overlay.connections
        ).values()
    )
