from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan, plan_svg
from skyplane_orchestration.planner.plots.plan_map import HEIGHT, WIDTH

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def overlay(shipped: Grid) -> TransferPlan:
    return plan(shipped, "gcp:us-east5", "gcp:asia-south1", MinimizeCost(45))


def texts(drawing: str) -> list[str]:
    root = ElementTree.fromstring(drawing)
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def places(drawing: str) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(drawing)
    return [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{SVG}circle")]


def test_every_region_and_every_flow_can_be_read(shipped: Grid, overlay: TransferPlan) -> None:
    words = texts(plan_svg(overlay, shipped))
    for tag in overlay.relays:
        assert tag in words
    assert f"{overlay.src} (source)" in words
    assert f"{overlay.dst} (sink)" in words
    for edge in overlay.edges:
        assert f"{edge.flow_gbps:.2f} Gbit/s" in words
    for group in overlay.instances.values():
        assert f"{group.count} x {group.type}" in words


def test_no_two_regions_lie_on_one_another_and_all_are_on_the_sheet(
    shipped: Grid, overlay: TransferPlan
) -> None:
    found = places(plan_svg(overlay, shipped))
    assert len(found) == len(overlay.instances)
    for number, (x, y) in enumerate(found):
        assert 0 < x < WIDTH
        assert 0 < y < HEIGHT
        for u, v in found[number + 1 :]:
            assert (x - u) ** 2 + (y - v) ** 2 > 40**2


def test_two_regions_of_one_city_are_told_apart(shipped: Grid) -> None:
    answer = plan(shipped, "aws:us-east-1", "gcp:us-east4", MinimizeCost(2))
    (x, y), (u, v) = places(plan_svg(answer, shipped))
    assert (x - u) ** 2 + (y - v) ** 2 > 40**2


def test_the_wider_line_carries_more(shipped: Grid, overlay: TransferPlan) -> None:
    root = ElementTree.fromstring(plan_svg(overlay, shipped))
    widths = [
        float(path.attrib["stroke-width"])
        for path in root.iter(f"{SVG}path")
        if "stroke-width" in path.attrib
    ]
    by_flow = sorted(zip([edge.flow_gbps for edge in overlay.edges], widths, strict=True))
    assert [width for _, width in by_flow] == sorted(widths)


def test_the_pacific_is_crossed_the_short_way(shipped: Grid) -> None:
    answer = plan(shipped, "aws:ap-northeast-1", "aws:us-west-2", MinimizeCost(2))
    (tokyo, _), (oregon, _) = places(plan_svg(answer, shipped))
    assert tokyo < oregon


def test_regions_of_unknown_position_are_drawn_too(
    small_grid: Callable[..., Grid], triangle: Grid
) -> None:
    answer = plan(triangle, "aws:s", "gcp:t", MinimizeCost(5), limits=Limits(instance_limit=1))
    assert len(places(plan_svg(answer, triangle))) == 3


def test_a_plan_inside_one_region_is_one_circle(shipped: Grid) -> None:
    answer = plan(shipped, "aws:us-east-1", "aws:us-east-1", MinimizeCost(1))
    assert len(places(plan_svg(answer, shipped))) == 1
