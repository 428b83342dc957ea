from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from tests.planner.plots.drawings import (
    SVG,
    centred_texts,
    corners,
    curve,
    groups,
    overlapping_texts,
    places,
    texts,
)
from tests.provision.samples import make_plan

from skyplane_orchestration.formatting import rate
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.planner import multicast_plan, plan, plan_svg
from skyplane_orchestration.planner.plots import HEIGHT, WIDTH

ONE = Limits(instance_limit=1)
#: Floors count expected rates.
EXPECTED = Limits(instance_limit=1, confidence=0.5)


@pytest.fixture(scope="module")
def overlay(shipped: Grid) -> TransferPlan:
    return plan(shipped, "gcp:us-east5", "aws:ap-south-1", MinimizeCost(45))


@pytest.fixture(scope="module")
def drawing(shipped: Grid, overlay: TransferPlan) -> str:
    return plan_svg(overlay, shipped)


def test_every_fact_can_be_read(overlay: TransferPlan, drawing: str) -> None:
    words = texts(drawing)
    assert "gcp:us-east5 to aws:ap-south-1" in words
    assert (
        f"45.00 Gbit/s  ·  {overlay.cost.usd_per_gb:.4f} USD per GB  ·  {overlay.instance_count}"
        f" instances  ·  {len(overlay.relays)} relays  ·  grid shipped, modelled rates"
    ) in words
    assert {*overlay.relays, f"{overlay.src} (source)", f"{overlay.dst} (sink)"} <= set(words)
    assert {f"{rate(edge.flow_gbps)} Gbit/s" for edge in overlay.edges} <= set(words)
    for group in overlay.instances.values():
        assert {str(group.count), f"{group.count} x {group.type}"} <= set(words)


def test_regions_are_where_they_are_on_earth(
    overlay: TransferPlan, drawing: str, shipped: Grid
) -> None:
    found = places(drawing, "region")
    assert found.keys() == overlay.instances.keys()
    far = 0
    for one, other in itertools.combinations(map(shipped.region, found), 2):
        assert one.longitude is not None
        assert other.longitude is not None
        if abs(one.longitude - other.longitude) > 20:
            far += 1
            is_west = found[one.tag][0] < found[other.tag][0]
            assert is_west == (one.longitude < other.longitude)
    assert far


def test_the_pacific_is_crossed_the_short_way(shipped: Grid) -> None:
    answer = plan(shipped, "aws:ap-northeast-1", "aws:us-west-2", MinimizeCost(2))
    found = places(plan_svg(answer, shipped), "region")
    assert found["aws:ap-northeast-1"][0] < found["aws:us-west-2"][0]


def test_the_coast_is_where_the_regions_are(shipped: Grid) -> None:
    drawing = plan_svg(
        plan(shipped, "aws:ap-northeast-1", "aws:us-west-2", MinimizeCost(2)), shipped
    )
    (coast,) = (corners(group) for group in groups(drawing, "coast").values())
    tokyo = places(drawing, "region")["aws:ap-northeast-1"]
    assert min(math.dist(point, tokyo) for point in coast) < 15
    assert not [y for x, y in coast if abs(x - WIDTH / 2) < 60 and 150 < y < 300]  # The Pacific.


@pytest.mark.parametrize(
    ("src", "dst", "gbps", "limits"),
    [
        ("aws:ap-southeast-2", "aws:eu-west-3", 4.1, EXPECTED),
        ("gcp:me-west1", "gcp:northamerica-northeast1", 6.7, ONE),  # 8 edges cross.
        ("aws:us-east-1", "gcp:us-east4", 2, ONE),  # Of one city.
        ("gcp:us-east5", "azure:centralindia", 45, Limits()),
    ],
)
def test_a_text_touches_no_other_text_and_its_own_edge_only(
    shipped: Grid, src: str, dst: str, gbps: float, limits: Limits
) -> None:
    answer = plan(shipped, src, dst, MinimizeCost(gbps), limits=limits)
    drawing = plan_svg(answer, shipped)
    assert overlapping_texts(drawing) == []
    found = places(drawing, "region").values()
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in found)
    assert all(math.dist(one, other) > 40 for one, other in combinations(found, 2))
    # Each region has a count and two lines of text, then each edge has one.
    tags = dict.fromkeys([src, dst, *answer.instances])
    own = [{one for one in answer.edges if tag in (one.src, one.dst)} for tag in tags]
    edges = [*(of_region for of_region in own for _ in range(3)), *({one} for one in answer.edges)]
    arrows = groups(drawing, "edge")
    lines = {edge: curve(arrows[f"{edge.src}-{edge.dst}"]) for edge in answer.edges}
    for (x, y, text), own_edges in zip(centred_texts(drawing), edges, strict=True):
        for edge in lines.keys() - own_edges:
            points, width = lines[edge]
            # A character is 5 wide; y is that of the base line.
            inside = [
                point
                for point in points
                if abs(point[0] - x) < (5 * len(text) + width) / 2
                and -7 - width / 2 < point[1] - y < 1 + width / 2
            ]
            assert not inside, (text, edge)


def test_the_wider_arrow_carries_more(overlay: TransferPlan, drawing: str) -> None:
    arrows = groups(drawing, "edge")
    widths = [
        curve(arrows[f"{edge.src}-{edge.dst}"])[1]
        for edge in sorted(overlay.edges, key=lambda edge: edge.flow_gbps)
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_regions_are_in_columns_where_one_has_no_position(
    small_grid: Callable[..., Grid], triangle: Grid
) -> None:
    answer = plan(triangle, "aws:s", "gcp:t", MinimizeCost(5), limits=ONE)
    found = places(plan_svg(answer, triangle), "region")
    (relay,) = answer.relays
    assert found["aws:s"][0] < found[relay][0] < found["gcp:t"][0]
    grid = small_grid({("aws:s", "gcp:a"): (4.0, 0.1), ("gcp:a", "gcp:b"): (4.0, 0.01)})
    drawing = plan_svg(multicast_plan(grid, "aws:s", ["gcp:a", "gcp:b"], MinimizeCost(1)), grid)
    found = places(drawing, "region")
    assert found["aws:s"][0] < found["gcp:a"][0] == found["gcp:b"][0]
    assert found["gcp:a"][1] < found["gcp:b"][1]
    assert {"aws:s to gcp:a, gcp:b", "gcp:a (sink)", "gcp:b (sink)"} <= set(texts(drawing))


def test_a_plan_inside_one_region_is_one_circle(shipped: Grid) -> None:
    for tag in ("aws:us-east-1", "local:this-machine"):
        answer = plan(shipped, tag, tag, MinimizeCost(1))
        assert places(plan_svg(answer, shipped), "region").keys() == {tag}


def test_an_edge_tells_its_facts_and_points_to_its_end(drawing: str, overlay: TransferPlan) -> None:
    arrows = groups(drawing, "edge")
    for edge in overlay.edges:
        words = "".join(arrows[f"{edge.src}-{edge.dst}"].itertext())
        assert words.startswith(f"{edge.src} to {edge.dst}: {rate(edge.flow_gbps)} Gbit/s over")
        assert f"{edge.connections} connections for {edge.usd_per_gb:.4f} USD per GB" in words
    heads = {f"url(#{name})" for name in (f"head-{one}" for one in groups(drawing, "head"))}
    lines = [line for arrow in arrows.values() for line in arrow.iter(f"{SVG}path")]
    assert {line.attrib["marker-end"] for line in lines} <= heads


R1, R2, R3, R4 = "aws:us-east-1", "gcp:us-central1", "azure:westeurope", "gcp:europe-west1"


@pytest.mark.parametrize(
    ("plan", "order"),
    [
        (
            make_plan([((R1, R3), 2.0), ((R1, R2, R3), 6.0)], {R1: 2, R2: 3, R3: 2}),
            [[R1], [R2], [R3]],
        ),
        (
            make_plan([((R1, R2, R4, R3), 1.0)], dict.fromkeys((R1, R2, R3, R4), 1)),
            [[R1], [R2], [R4], [R3]],
        ),
        (
            make_plan(
                [((R1, R2, R4, R3), 1.0), ((R1, R4, R2, R3), 1.0)],
                dict.fromkeys((R1, R2, R3, R4), 1),
            ),
            [[R1], [R2, R4], [R3]],
        ),
        (make_plan([((R1,), 1.0)], {R1: 1}), [[R1]]),
    ],
    ids=["direct and relay", "two relays in a row", "relays both ways", "one region"],
)
def test_without_a_grid_the_way_leads_from_left_to_right(
    plan: TransferPlan, order: list[list[str]]
) -> None:
    found = places(plan_svg(plan), "region")
    columns = [sorted(found[tag][0] for tag in column) for column in order]
    assert [x for column in columns for x in column] == sorted(x for x, _ in found.values())
    assert all(before[-1] + 100 < after[0] for before, after in itertools.pairwise(columns))
    for (x, y), (u, v) in combinations(found.values(), 2):
        assert abs(x - u) > 150 or abs(y - v) > 60
    assert not groups(plan_svg(plan), "coast")


def test_names_are_text_whatever_their_characters() -> None:
    odd = make_plan([((R1, R3), 2.0)], {R1: 1, R3: 1})
    odd = replace(odd, instances={R1: InstanceGroup("<script>&", 1)})
    assert "1 x <script>&" in texts(plan_svg(odd))
