from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.config import Route
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import instance_of
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.fleet.machines import Reach
from skyplane_orchestration.provision.routes import (
    build_routes,
    dialed,
    node_names,
    split_into_processes,
)

if TYPE_CHECKING:
    from tests.provision.conftest import PlanMaker

SRC, DST = "aws:us-east-1", "azure:westeurope"
RELAYS = ["gcp:us-central1", "aws:eu-west-1", "azure:eastus"]


#: Gateways of each instance, by region.
PROCESSES = st.integers(1, 3)


@st.composite
def plans(draw: st.DrawFn, plan_of: PlanMaker) -> TransferPlan:
    """Plans whose every path goes from SRC to DST through up to three relays."""
    ways = st.lists(st.sampled_from(RELAYS), unique=True, max_size=3).map(tuple)
    relays = draw(st.lists(ways, unique=True, min_size=1, max_size=4))
    flows = st.floats(0.1, 40.0)
    paths = [((SRC, *way, DST), draw(flows)) for way in relays]
    regions = sorted({region for path, _ in paths for region in path})
    counts = {region: draw(st.integers(1, 8)) for region in regions}
    edges = sorted({hop for path, _ in paths for hop in pairwise(path)})
    connections = {
        hop: draw(st.integers(1, 64 * min(counts[hop[0]], counts[hop[1]]))) for hop in edges
    }
    return plan_of(paths, counts, connections)


def carried_gbps(routes: tuple[Route, ...]) -> Counter[str]:
    carried: Counter[str] = Counter()
    for route in routes:
        for node in route.nodes:
            carried[node] += route.share_gbps  # type: ignore[assignment]
    return carried


@given(data=st.data(), most=st.none() | st.integers(1, 4))
def test_routes_carry_the_plan(plan_of: PlanMaker, data: st.DataObject, most: int | None) -> None:
    plan = data.draw(plans(plan_of))
    nodes = split_into_processes(node_names(plan, most), data.draw(PROCESSES))
    routes = build_routes(plan, nodes)
    assert [route.number for route in routes] == list(range(len(routes)))
    assert sum(r.share_gbps for r in routes) == pytest.approx(plan.throughput_gbps, rel=1e-9)
    carried = carried_gbps(routes)
    assert set(carried) == {node for group in nodes.values() for node in group}
    for region, group in nodes.items():
        through = sum(path.flow_gbps for path in plan.paths if region in path.regions)
        for node in group:
            assert carried[node] == pytest.approx(through / len(group), rel=1e-9)
    pieces = sum(
        sum(len(nodes[region]) for region in path.regions) - len(path.regions) + 1
        for path in plan.paths
    )
    assert len(routes) <= pieces


@given(data=st.data(), most=st.none() | st.integers(1, 4))
def test_an_instance_has_about_the_planned_connections(
    plan_of: PlanMaker, data: st.DataObject, most: int | None
) -> None:
    plan = data.draw(plans(plan_of))
    instances = node_names(plan, most)
    nodes = split_into_processes(instances, data.draw(PROCESSES))
    routes = build_routes(plan, nodes)
    for edge in plan.edges:
        for instance in instances[edge.src]:
            hops = [
                route.connections[index]
                for route in routes
                for index, hop in enumerate(pairwise(route.nodes))
                if instance_of(hop[0]) == instance and hop[1] in nodes[edge.dst]
            ]
            assert all(1 <= count <= 64 for count in hops)
            planned = edge.connections / plan.instances[edge.src].count
            # Each hop is rounded by a half, or lifted to one connection.
            assert sum(hops) <= planned + len(hops)
            if most is None:
                assert sum(hops) >= planned - len(hops) / 2


def test_equal_counts_are_paired(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC, RELAYS[0], DST), 6.0)], {SRC: 3, RELAYS[0]: 3, DST: 3})
    routes = build_routes(plan, node_names(plan))
    assert [route.nodes for route in routes] == [
        (f"{SRC}/{index}", f"{RELAYS[0]}/{index}", f"{DST}/{index}") for index in range(3)
    ]
    assert [route.share_gbps for route in routes] == [2.0, 2.0, 2.0]
    assert {route.connections for route in routes} == {(21, 21)}


def test_a_route_knows_how_far_its_egress_is_above_the_ceiling(plan_of: PlanMaker) -> None:
    paths = [((SRC, DST), 3.0), ((SRC, RELAYS[0], DST), 2.0), ((SRC, RELAYS[1], DST), 1.0)]
    plan = plan_of(paths, {SRC: 1, DST: 1, RELAYS[0]: 1, RELAYS[1]: 1})
    prices = {DST: 0.02, RELAYS[0]: 0.04, RELAYS[1]: 0.01}
    edges = tuple(
        replace(edge, usd_per_gb=prices[edge.dst] if edge.src == SRC else 0.05)
        for edge in plan.edges
    )
    plan = replace(plan, edges=edges)
    nodes = node_names(plan)
    assert {route.over_ceiling_usd_per_gb for route in build_routes(plan, nodes)} == {0.0}
    routes = build_routes(replace(plan, egress_ceiling_usd_per_gb=0.06), nodes)
    over = [route.over_ceiling_usd_per_gb for route in routes]
    assert over == [pytest.approx(-0.04), pytest.approx(0.03), pytest.approx(0.0)]


def test_unequal_counts_share_evenly(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC, DST), 6.0)], {SRC: 2, DST: 3})
    routes = build_routes(plan, node_names(plan))
    assert [route.nodes for route in routes] == [
        (f"{SRC}/0", f"{DST}/0"),
        (f"{SRC}/0", f"{DST}/1"),
        (f"{SRC}/1", f"{DST}/1"),
        (f"{SRC}/1", f"{DST}/2"),
    ]
    assert [route.share_gbps for route in routes] == pytest.approx([2.0, 1.0, 1.0, 2.0])


def test_fewer_gateways_than_planned_take_only_their_own_connections(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC, DST), 6.0)], {SRC: 8, DST: 8}, {(SRC, DST): 256})
    full = build_routes(plan, node_names(plan))
    capped = build_routes(plan, node_names(plan, 2))
    assert [route.connections for route in full] == [(32,)] * 8
    assert [route.connections for route in capped] == [(32,)] * 2


def test_gateways_of_an_instance_share_its_flow_and_connections(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC, DST), 6.0)], {SRC: 2, DST: 1}, {(SRC, DST): 64})
    nodes = split_into_processes(node_names(plan), 2)
    assert nodes == {
        SRC: tuple(f"{SRC}/{name}" for name in ("0.0", "0.1", "1.0", "1.1")),
        DST: (f"{DST}/0.0", f"{DST}/0.1"),
    }
    routes = build_routes(plan, nodes)
    sinks = [node for node in nodes[DST] for _ in range(2)]
    assert [route.nodes for route in routes] == list(zip(nodes[SRC], sinks, strict=True))
    assert {(route.share_gbps, route.connections) for route in routes} == {(1.5, (16,))}


def test_one_region_gives_routes_of_one_node(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC,), 4.0)], {SRC: 2})
    routes = build_routes(plan, node_names(plan))
    assert [(r.nodes, r.connections, r.share_gbps) for r in routes] == [
        ((f"{SRC}/0",), (), 2.0),
        ((f"{SRC}/1",), (), 2.0),
    ]


def test_a_thin_path_keeps_a_connection(plan_of: PlanMaker) -> None:
    paths = [((SRC, DST), 100.0), ((SRC, RELAYS[0], DST), 0.1)]
    counts = {SRC: 4, RELAYS[0]: 1, DST: 4}
    thin = {(SRC, DST): 256, (SRC, RELAYS[0]): 1, (RELAYS[0], DST): 1}
    plan = plan_of(paths, counts, thin)
    routes = build_routes(plan, node_names(plan))
    assert [route.connections for route in routes[4:]] == [(1, 1)] * 4


def test_a_plan_that_does_not_fit_together_is_refused(plan_of: PlanMaker) -> None:
    plan = plan_of([((SRC, DST), 4.0)], {SRC: 1, DST: 1})
    nodes = node_names(plan)
    with pytest.raises(ConfigurationInvalid, match=f"no path .* leads through {RELAYS[0]}/0"):
        build_routes(plan, {**nodes, RELAYS[0]: (f"{RELAYS[0]}/0",)})
    with pytest.raises(ConfigurationInvalid, match=f"{DST}, which has no gateway"):
        build_routes(plan, {SRC: nodes[SRC]})
    with pytest.raises(ConfigurationInvalid, match="no instance there"):
        node_names(plan_of([((SRC, DST), 4.0)], {SRC: 1}))
    pathless = plan_of([((SRC,), 4.0)], {SRC: 1}).to_dict() | {"paths": []}
    with pytest.raises(ConfigurationInvalid, match="no path"):
        node_names(TransferPlan.from_dict(pathless))
    edgeless = plan.to_dict() | {"edges": []}
    with pytest.raises(ConfigurationInvalid, match="not one of its edges"):
        build_routes(TransferPlan.from_dict(edgeless), nodes)


CLOSED, OPEN, CLOUD = Reach("one", False), Reach("two", True, ("203.0.113.7/32",)), Reach()
OUTWARD = Reach("one", False, ("198.51.100.1/32",))


@pytest.mark.parametrize(
    ("reaches", "backwards"),
    [
        ((CLOUD, CLOUD, CLOUD), ()),
        ((CLOSED, CLOSED, CLOSED), ()),
        ((CLOUD, OPEN, CLOUD), ()),
        ((CLOUD, OUTWARD, CLOUD), (0,)),
        ((OUTWARD, CLOUD, OUTWARD), (1,)),
        ((OUTWARD, CLOUD, OPEN), ()),
    ],
)
def test_a_hop_is_dialed_by_a_side_that_can(
    reaches: tuple[Reach, ...], backwards: tuple[int, ...]
) -> None:
    regions = (SRC, RELAYS[0], DST)
    route = Route(0, tuple(f"{region}/0.1" for region in regions), (8, 8), 1.0)
    [found] = dialed([route], dict(zip(regions, reaches, strict=True)).__getitem__)
    assert found == replace(route, dialed_by_downstream=backwards)


@pytest.mark.parametrize(
    ("reaches", "said"),
    [
        ((CLOUD, CLOUD, OUTWARD), f"{DST} admits no connections of {SRC}"),
        ((OUTWARD, CLOUD, Reach("two", False)), f"{DST} admits no connections of {SRC}"),
        ((OUTWARD, Reach("two", False), CLOUD), f"neither {SRC} nor {RELAYS[0]} admits"),
        ((CLOSED, CLOUD, CLOUD), f"gateways of {SRC} open connections to {DST}; name"),
    ],
)
def test_gateways_that_cannot_reach_each_other_are_refused(
    reaches: tuple[Reach, ...], said: str
) -> None:
    """Before anything is launched."""
    regions = (SRC, RELAYS[0], DST)
    route = Route(0, tuple(f"{region}/0" for region in regions), (8, 8), 1.0)
    with pytest.raises(ConfigurationInvalid, match=said):
        dialed([route], dict(zip(regions, reaches, strict=True)).__getitem__)
