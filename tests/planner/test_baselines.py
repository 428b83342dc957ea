from __future__ import annotations

import pytest

from skyplane_orchestration.errors import PlanInfeasible, UnknownRegion
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits
from skyplane_orchestration.planner import best_relay, direct, violations

S, T, R = "aws:s", "gcp:t", "azure:r"


def test_direct_uses_every_connection_of_every_instance(triangle: Grid) -> None:
    answer = direct(triangle, S, T, 3, volume_gb=100)
    assert answer.throughput_gbps == pytest.approx(7.5)
    assert answer.edges[0].connections == 192
    assert {group.count for group in answer.instances.values()} == {3}
    assert answer.cost.egress_usd == pytest.approx(10)
    assert answer.objective == {"kind": "direct", "instances": 3}
    assert answer.solver.status == "baseline"
    assert violations(answer, triangle) == []


def test_the_best_relay_is_taken_whatever_it_costs(triangle: Grid) -> None:
    answer = best_relay(triangle, S, T, 2)
    assert answer.relays == (R,)
    assert answer.throughput_gbps == pytest.approx(10)
    assert violations(answer, triangle) == []
    assert direct(triangle, S, T, 2).throughput_gbps < answer.throughput_gbps


def test_a_tie_stays_direct(triangle: Grid) -> None:
    assert best_relay(triangle, S, R).relays == ()


def test_a_bigger_instance_lifts_its_limit(shipped: Grid) -> None:
    pair = ("azure:eastus", "gcp:us-east4")
    small = direct(shipped, *pair)
    assert small.throughput_gbps <= 10
    assert small.instances[pair[0]].type == "Standard_D4s_v5"
    big = direct(shipped, *pair, limits=Limits(instance_types={"azure": "Standard_D32_v5"}))
    assert big.instances[pair[0]].type == "Standard_D32_v5"


def test_no_edge_and_no_region_are_refused(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="no edge"):
        direct(triangle, R, S)
    with pytest.raises(UnknownRegion):
        direct(triangle, S, "aws:nowhere")
