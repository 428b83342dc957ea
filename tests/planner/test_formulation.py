"""Each row block alone, on a triangle: the matrix says exactly what the equation says."""

from __future__ import annotations

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner import formulation
from skyplane_orchestration.planner.formulation import RowBlock, columns_of
from skyplane_orchestration.planner.problem import PlanProblem, build_problem


@pytest.fixture
def problem(triangle: Grid) -> PlanProblem:
    return build_problem(triangle, "aws:s", "gcp:t", goal_gbps=4.0)


def point(problem: PlanProblem, **values: float) -> Floats:
    """A vector of unknowns from `F_st`, `M_st`, `N_s`, `Y_r` and `G`; the rest is 0."""
    letters = [tag.partition(":")[2] for tag in problem.tags]
    columns = columns_of(problem)
    x = np.zeros(columns.count)
    for name, value in values.items():
        kind, _, place = name.partition("_")
        if kind == "G":
            x[columns.throughput] = value
        elif kind in "FM":
            edge = next(
                number
                for number, (tail, head) in enumerate(zip(problem.tail, problem.head, strict=True))
                if (letters[tail], letters[head]) == (place[0], place[1])
            )
            x[(columns.flow if kind == "F" else columns.connections).start + edge] = value
        else:
            block = {"N": columns.instances, "Y": columns.relaying}[kind]
            x[block.start + letters.index(place)] = value
    return x


def rows(block: RowBlock, x: Floats) -> list[float]:
    """The rows' values, without the trivial ones."""
    return [
        round(float(value), 9) for value in formulation.stacked([block]) @ x if abs(value) > 1e-12
    ]


def integer_edges(problem: PlanProblem) -> np.ndarray:
    return np.ones(problem.edge_count, dtype=bool)


def test_no_edge_enters_the_source_or_leaves_the_sink(problem: PlanProblem) -> None:
    assert problem.edge_count == 3
    assert not (problem.head == problem.src).any()
    assert not (problem.tail == problem.dst).any()


def test_edge_capacity(problem: PlanProblem) -> None:
    block = formulation.edge_capacity(problem, integer_edges(problem))
    assert rows(block, point(problem, F_st=2.5, M_st=32)) == [1.25]
    assert rows(block, point(problem, F_st=2.5, M_st=64)) == []
    assert (block.upper == 0).all()
    assert (block.lower == -np.inf).all()


def test_flow_balance(problem: PlanProblem) -> None:
    """The rows are those of s, r and t, in the order of their tags."""
    block = formulation.flow_balance(problem)
    letters = [tag.partition(":")[2] for tag in problem.tags]

    def at(region: str, **values: float) -> float:
        x = point(problem, **values)
        return float((formulation.stacked([block]) @ x)[letters.index(region)])

    assert at("s", F_st=2, F_sr=3, F_rt=3, G=4) == 1
    assert at("t", F_st=2, F_rt=1, G=4) == 1
    assert at("r", F_sr=3, F_rt=1, F_st=9) == -2
    assert (block.lower == 0).all()
    assert (block.upper == 0).all()


def test_ingress_limit(problem: PlanProblem) -> None:
    block = formulation.ingress_limit(problem)
    assert rows(block, point(problem, F_sr=3, F_st=2, N_t=1)) == [3, 2 - 10]


def test_egress_limit(problem: PlanProblem) -> None:
    block = formulation.egress_limit(problem)
    assert rows(block, point(problem, F_sr=3, F_st=4, N_s=1)) == [3 + 4 - 5]


def test_connection_limits(problem: PlanProblem) -> None:
    x = point(problem, M_st=10, M_sr=60, M_rt=5, N_s=1, N_t=1)
    out = formulation.connection_limit_out(problem, integer_edges(problem))
    into = formulation.connection_limit_in(problem, integer_edges(problem))
    assert sorted(rows(out, x)) == [-64, 5, 10 + 60 - 64]
    assert sorted(rows(into, x)) == [-64, 10 + 5 - 64, 60]


def test_connections_that_are_not_counted_are_what_the_flow_needs(problem: PlanProblem) -> None:
    none = ~integer_edges(problem)
    x = point(problem, F_st=1.25, F_sr=5, F_rt=5)
    assert len(formulation.edge_capacity(problem, none).upper) == 0
    assert sorted(rows(formulation.connection_limit_out(problem, none), x)) == [64.0, 32.0 + 64.0]


def test_the_cost_is_dollars_per_second(problem: PlanProblem) -> None:
    x = point(problem, F_st=8, N_s=2, M_st=9, G=3, Y_r=1)
    assert formulation.cost_per_second(problem) @ x == pytest.approx(8 * 0.10 / 8 + 2 * 0.001)


def test_cost_ceiling(problem: PlanProblem) -> None:
    block = formulation.cost_ceiling(problem, 0.02)
    assert rows(block, point(problem, F_st=8, G=4)) == [0.1 / 0.02 - 4]


def test_relays_are_counted_and_limited(problem: PlanProblem) -> None:
    x = point(problem, N_r=3, N_s=5, Y_r=1)
    assert sorted(rows(formulation.relay_switch(problem), x)) == [3 / 8 - 1, 5 / 8]
    limit = formulation.relay_limit(problem, 0)
    assert rows(limit, x) == [1]
    assert limit.upper.tolist() == [0]


def test_every_equation_of_the_paper_has_a_name(problem: PlanProblem) -> None:
    names = [block.name for block in formulation.model_rows(problem, integer_edges(problem))]
    assert names == [
        "edge_capacity",
        "flow_balance",
        "ingress_limit",
        "egress_limit",
        "connection_limit_out",
        "connection_limit_in",
    ]


def test_an_overhead_scales_the_price_of_instances_and_nothing_else(problem: PlanProblem) -> None:
    dearer = problem.with_overhead(1.5)
    x = point(problem, F_st=8, N_s=2)
    cost = formulation.cost_per_second(dearer) @ x
    assert cost == pytest.approx(8 * 0.10 / 8 + 2 * 0.001 * 1.5)
