from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.planner.decode import decode
from skyplane_orchestration.planner.overlay import with_spare_connections
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.solution import IntegerSolution

S, T, A, B = "aws:s", "gcp:t", "azure:a", "azure:b"


@pytest.fixture(scope="module")
def square(small_grid: Callable[..., Grid]) -> Grid:
    tags = (S, T, A, B)
    return small_grid({(u, v): (4.0, 0.1) for u in tags for v in tags if u != v})


def solution(grid: Grid, flows: Mapping[tuple[str, str], float], gbps: float) -> IntegerSolution:
    problem = build_problem(grid, S, T, goal_gbps=gbps)
    edges = [
        (problem.tags[u], problem.tags[v]) for u, v in zip(problem.tail, problem.head, strict=True)
    ]
    return IntegerSolution(
        problem=problem,
        flow_gbps=np.array([flows.get(edge, 0.0) for edge in edges]),
        instances=np.full(problem.region_count, 8.0),
        connections=np.full(problem.edge_count, 512.0),
        throughput_gbps=gbps,
        objective=0.0,
        bound=0.0,
    )


def test_a_flow_comes_apart_into_its_paths(square: Grid) -> None:
    flows = {(S, T): 2.0, (S, A): 3.0, (A, T): 1.0, (A, B): 2.0, (B, T): 2.0}
    overlay = decode(solution(square, flows, 5.0))
    assert overlay.paths == {(S, T): 2.0, (S, A, B, T): 2.0, (S, A, T): 1.0}
    assert overlay.flows == flows


def test_a_cycle_is_dropped(square: Grid) -> None:
    flows = {(S, T): 2.0, (A, B): 1.0, (B, A): 1.0}
    overlay = decode(solution(square, flows, 2.0))
    assert overlay.flows == {(S, T): 2.0}
    assert list(overlay.instances) == [S, T]


def test_the_noise_of_the_solver_is_dropped_and_the_rate_kept(square: Grid) -> None:
    flows = {(S, T): 2.0 - 1e-8, (S, A): 1e-8, (A, T): 1e-8}
    overlay = decode(solution(square, flows, 2.0))
    assert overlay.flows == {(S, T): pytest.approx(2.0, abs=1e-12)}


def test_connections_and_instances_are_no_more_than_needed(square: Grid) -> None:
    overlay = decode(solution(square, {(S, T): 6.0, (S, A): 1.0, (A, T): 1.0}, 7.0))
    assert overlay.connections == {(S, T): 96, (S, A): 16, (A, T): 16}
    assert overlay.instances == {S: 2, T: 2, A: 1}


def test_a_single_path_has_all_connections_of_its_instances(square: Grid) -> None:
    overlay = decode(solution(square, {(S, A): 3.0, (A, T): 3.0}, 3.0))
    spread = with_spare_connections(overlay)
    assert spread.connections == {(S, A): 64, (A, T): 64}
    assert replace(spread, connections=overlay.connections) == overlay


def test_the_end_with_less_to_spare_holds_several_paths_to_their_shares(square: Grid) -> None:
    overlay = decode(solution(square, {(S, T): 6.0, (S, A): 1.0, (A, T): 1.0}, 7.0))
    # 112 of 128 connections at both ends, 16 of 64 at the relay.
    held = {(S, T): 96, (S, A): 16}
    assert with_spare_connections(overlay).connections == {**held, (A, T): 18}
    wide = replace(overlay, instances={**overlay.instances, S: 3})
    held = {(S, T): 96, (A, T): 16}
    assert with_spare_connections(wide).connections == {**held, (S, A): 27}


def test_the_tolerance_of_the_solver_costs_no_connection_and_no_instance(
    small_grid: Callable[..., Grid],
) -> None:
    """1e-6 Gbit/s too much is a thousandth of a connection on an edge of 0.1 Gbit/s."""
    grid = small_grid({(S, T): (0.1, 0.1)})
    exact = solution(grid, {(S, T): 0.1 + 1e-6}, 0.1 + 1e-6)
    tight = replace(exact, connections=np.array([64.0]), instances=np.array([1.0, 1.0]))
    overlay = decode(tight)
    assert overlay.connections == {(S, T): 64}
    assert overlay.instances == {S: 1, T: 1}


def test_flow_without_a_connection_is_noise(square: Grid) -> None:
    exact = solution(square, {(S, T): 2.0, (S, A): 1e-6, (A, T): 1e-6}, 2.0)
    problem = exact.problem
    only_direct = (problem.tail == problem.src) & (problem.head == problem.dst)
    overlay = decode(replace(exact, connections=np.where(only_direct, 64.0, 0.0)))
    assert overlay.flows == {(S, T): 2.0}


def test_ends_come_first_and_relays_by_name(square: Grid) -> None:
    flows = {(S, B): 1.0, (B, T): 1.0, (S, A): 1.0, (A, T): 1.0}
    assert list(decode(solution(square, flows, 2.0)).instances) == [S, T, A, B]


def test_the_type_is_the_one_that_has_instances(small_grid: Callable[..., Grid]) -> None:
    """Two types at the source that neither replaces the other."""
    kinds = [
        InstanceType("aws", "small", 2, 2.0, 2.0, 64, 0.1, 8),
        InstanceType("aws", "large", 8, 9.0, 9.0, 128, 1.0, 8),
    ]
    grid = small_grid({(S, T): (9.0, 0.1)}, kinds)
    exact = solution(grid, {(S, T): 4.0}, 4.0)
    problem = exact.problem
    assert [kind.name for kind in problem.types] == ["small", "large", "gcp-plain"]
    overlay = decode(replace(exact, instances=np.array([0.0, 3.0, 1.0])))
    assert overlay.types[S].name == "large"
    assert overlay.instances == {S: 1, T: 1}
