"""Plans without paths that carry next to nothing.

An optimum may send its last hundredth over a relay of its own, to spend the last cent of a
ceiling or to reach a floor to the last digit. Such a relay is one more place that can fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.model.job import MaximizeThroughput, Objective
from skyplane_orchestration.planner.decode import ROUNDING, Overlay
from skyplane_orchestration.planner.job_cost import Candidate, priced
from skyplane_orchestration.planner.objectives import Question
from skyplane_orchestration.planner.problem import PlanProblem

#: A path carries at least this share of the rate.
LEAST_SHARE: Final = 0.01
#: Share of that least flow that counts as rounding.
_ROUNDING: Final = 1e-9
#: A plan on fewer edges may again have a thin path.
_ROUNDS: Final = 4


def thin_paths(overlay: Overlay) -> list[tuple[str, ...]]:
    """The paths that carry less than `LEAST_SHARE` of the rate."""
    least = overlay.throughput_gbps * LEAST_SHARE * (1 - _ROUNDING)
    return [path for path, flow in overlay.paths.items() if flow < least]


def without_thin_paths(question: Question, objective: Objective, found: Candidate) -> Candidate:
    """The candidate, or one that meets the objective as well and has no thin path.

    Either the best plan over the edges of the other paths, or, for a least cost, the same
    paths with the thin ones filled up: the better of the two. Where limits allow neither, the
    candidate as it is.
    """
    best = found
    for _ in range(_ROUNDS):
        if not thin_paths(best.overlay):
            return best
        offers = list(_offers(question, objective, best))
        if not offers:
            return best
        pick = max if isinstance(objective, MaximizeThroughput) else min
        best = pick(offers, key=lambda one: question.value_of(objective, one))
    return best


def _offers(question: Question, objective: Objective, found: Candidate) -> Iterator[Candidate]:
    narrow = replace(question, problem=_over_other_paths(question.problem, found.overlay))
    # Without a plan where the floor needs what the thin paths carry.
    with suppress(PlanInfeasible, SolverFailed):
        yield narrow.answer(objective).candidate
    if isinstance(objective, MaximizeThroughput):
        return
    for whole in (False, True):
        filled = _filled(question.problem, found.overlay, whole=whole)
        if _fits(filled):
            candidate = priced(question.grid, filled, question.bill)
            if question.may_cost(candidate):
                yield candidate


def _over_other_paths(problem: PlanProblem, overlay: Overlay) -> PlanProblem:
    thin = set(thin_paths(overlay))
    kept = {edge for path in overlay.paths if path not in thin for edge in pairwise(path)}
    ends = zip(problem.tail, problem.head, strict=True)
    return problem.with_edges(
        np.array([(problem.tags[tail], problem.tags[head]) in kept for tail, head in ends])
    )


def _filled(problem: PlanProblem, overlay: Overlay, *, whole: bool) -> Overlay:
    """The same paths at the same rate, the thin ones filled from the largest.

    Args:
        whole: filled to what their connections carry, so that the largest path gives up whole
            connections too, where those of an end are all in use.
    """
    rates = {
        (problem.tags[tail], problem.tags[head]): float(rate)
        for tail, head, rate in zip(
            problem.tail, problem.head, problem.gbps_per_connection, strict=True
        )
    }
    paths = dict(overlay.paths)
    for path in thin_paths(overlay):
        share = overlay.throughput_gbps * LEAST_SHARE
        if whole:
            slowest = min(rates[edge] for edge in pairwise(path))
            share = math.ceil(share / slowest) * slowest
        largest = max(paths, key=lambda one: paths[one])
        paths[largest] -= share - paths[path]
        paths[path] = share
    flows: dict[tuple[str, str], float] = {}
    for path, share in paths.items():
        for edge in pairwise(path):
            flows[edge] = flows.get(edge, 0.0) + share
    return replace(
        overlay,
        paths=dict(sorted(paths.items(), key=lambda item: (-item[1], item[0]))),
        flows=flows,
        connections={
            edge: max(1, math.ceil(flow / rates[edge] - ROUNDING)) for edge, flow in flows.items()
        },
    )


def _fits(overlay: Overlay) -> bool:
    """(4f) to (4i) with the instances that the overlay has, and no path gives more than it has."""
    if min(overlay.paths.values()) <= 0:
        return False
    for tag, count in overlay.instances.items():
        kind = overlay.types[tag]
        for position, most_gbps in ((0, kind.egress_gbps), (1, kind.ingress_gbps)):
            if _sum_at(overlay.flows, tag, position) > most_gbps * count * (1 + ROUNDING):
                return False
            if _sum_at(overlay.connections, tag, position) > kind.connection_limit * count:
                return False
    return True


def _sum_at(amounts: Mapping[tuple[str, str], float], tag: str, position: int) -> float:
    return sum(amount for edge, amount in amounts.items() if edge[position] == tag)
