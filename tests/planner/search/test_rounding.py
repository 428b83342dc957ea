from __future__ import annotations

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.search.restricted import round_connections_up
from skyplane_orchestration.planner.solution import IntegerSolution


def solution(triangle: Grid, flow: list[float], instances: float) -> IntegerSolution:
    """Flows over s -> r, s -> t, r -> t by tags, and as many instances everywhere."""
    problem = build_problem(
        triangle, "aws:s", "gcp:t", goal_gbps=1.0, limits=Limits(instance_limit=8)
    )
    pairs = [
        (problem.tags[u], problem.tags[v]) for u, v in zip(problem.tail, problem.head, strict=True)
    ]
    by_edge = dict(
        zip(
            [("aws:s", "azure:r"), ("aws:s", "gcp:t"), ("azure:r", "gcp:t")],
            flow,
            strict=True,
        )
    )
    return IntegerSolution(
        problem=problem,
        flow_gbps=np.array([by_edge[pair] for pair in pairs]),
        instances=np.full(problem.option_count, instances),
        connections=np.zeros(problem.edge_count),
        throughput_gbps=flow[0] + flow[1],
        objective=0.0,
        bound=0.0,
    )


def test_every_connection_is_rounded_up(triangle: Grid) -> None:
    """2.5 Gbit/s over 64 connections: 1.26 takes 32.256 of them."""
    whole = round_connections_up(solution(triangle, [0.0, 1.26, 0.0], 1.0))
    assert whole is not None
    assert sorted(whole.connections.tolist()) == [0, 0, 33]


def test_rounding_that_breaks_a_limit_is_no_answer(triangle: Grid) -> None:
    """1.26 direct and 2.47 relayed take 33 and 32 of 64 connections at the source."""
    assert round_connections_up(solution(triangle, [2.47, 1.26, 2.47], 1.0)) is None
    assert round_connections_up(solution(triangle, [2.47, 1.26, 2.47], 2.0)) is not None


def test_the_solvers_noise_takes_no_connection(triangle: Grid) -> None:
    whole = round_connections_up(solution(triangle, [1e-9, 2.5 + 1e-8, 1e-9], 1.0))
    assert whole is not None
    assert whole.connections.sum() == pytest.approx(64)
