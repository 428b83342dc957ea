"""Which edges a fleet may measure, and between which gateways."""

from __future__ import annotations

from dataclasses import replace

from tests.transfer.samples import PLAN, A, B, R

from skyplane_gateway.config import Route
from skyplane_orchestration.model.plan import InstanceGroup, PlanEdge, TransferPlan
from skyplane_orchestration.provision.routes import edges_to_probe, probe_routes

OTHER = "gcp:us-east1"


def plan_of(*edges: tuple[str, str]) -> TransferPlan:
    tags = dict.fromkeys(tag for edge in edges for tag in edge)
    return replace(
        PLAN,
        instances={tag: InstanceGroup("process", 2) for tag in tags},
        edges=tuple(PlanEdge(*edge, 1.0, 64, 5.0, 0.1) for edge in edges),
    )


def test_the_planned_edges_come_first_then_the_direct_path() -> None:
    assert edges_to_probe(plan_of((A, R), (R, B))) == ((A, R), (R, B), (A, B))


def test_a_chain_of_relays_may_be_left_out_in_part() -> None:
    chain = plan_of((A, R), (R, OTHER), (OTHER, B))
    assert edges_to_probe(chain) == (
        (A, R), (R, OTHER), (OTHER, B), (A, B), (R, B), (A, OTHER),
    )  # fmt: skip


def test_a_plan_without_edges_has_nothing_to_measure() -> None:
    assert edges_to_probe(PLAN) == ()


def test_the_gateways_of_the_first_instances_divide_the_connections_of_an_edge() -> None:
    nodes = {tag: [f"{tag}/{i}.{n}" for i in range(2) for n in range(3)] for tag in (A, R, B)}
    routes = probe_routes([(A, R), (R, B)], nodes)
    assert [route.nodes for route in routes] == [
        (f"{src}/0.{n}", f"{dst}/0.{n}") for src, dst in ((A, R), (R, B)) for n in range(3)
    ]
    assert {route.connections for route in routes} == {(21,)}
    # A gateway that gets the routes of a plan next knows which are gone.
    numbers = [route.number for route in routes]
    assert len(set(numbers)) == 6
    assert min(numbers) > 10_000
    assert max(numbers) < 1 << 16


def test_an_edge_is_dialed_as_the_routes_of_the_plan_are() -> None:
    nodes = {tag: [f"{tag}/0"] for tag in (A, R, B)}
    planned = Route(0, (f"{A}/0", f"{R}/0", f"{B}/0"), (8, 8), 1.0, (1,))
    routes = probe_routes([(A, R), (R, B), (A, B)], nodes, [planned])
    assert [route.dialed_by_downstream for route in routes] == [(), (0,), ()]
