from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.planner import best_relay, direct, frontier, frontier_svg, plan
from skyplane_orchestration.planner.plots.plan_map import HEIGHT, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
ENDS = ("aws:s", "gcp:t")
ONE = Limits(instance_limit=1)


def circles(root: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"]))
        for one in root.iter(f"{SVG}circle")
        if one.attrib["class"] == kind
    ]


def line(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Places of the relaxed frontier."""
    (only,) = root.iter(f"{SVG}polyline")
    pairs = (pair.split(",") for pair in only.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def words(root: ElementTree.Element) -> str:
    return " | ".join(root.itertext())


def test_faster_lies_further_right_and_dearer_higher(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=ONE)
    assert len(plans) > 2
    found = circles(ElementTree.fromstring(frontier_svg(plans, {})), "plan")
    assert len(found) == len(plans)
    assert found == sorted(found)
    assert found == sorted(found, key=lambda place: -place[1])
    for x, y in found:
        assert 0 < x < WIDTH
        assert 0 < y < HEIGHT


def test_no_plan_is_drawn_below_the_relaxed_frontier(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=ONE)
    root = ElementTree.fromstring(frontier_svg(plans, {}, relaxed=plans.relaxed))
    places = line(root)
    assert places == sorted(places)
    dots = circles(root, "plan")
    for x, y in dots:
        nearest = min(places, key=lambda place: abs(place[0] - x))
        assert y <= nearest[1] + 2.0
    # Both ends of this frontier are as cheap as the relaxed one.
    assert places[-1] == pytest.approx(dots[-1], abs=0.3)
    assert "no plan lies below" in words(root)


def test_places_are_in_proportion_from_zero(triangle: Grid) -> None:
    marks = {"direct": direct(triangle, *ENDS), "ron": best_relay(triangle, *ENDS)}
    assert marks["ron"].throughput_gbps == pytest.approx(2 * marks["direct"].throughput_gbps)
    plans = frontier(triangle, *ENDS, points=2)
    root = ElementTree.fromstring(frontier_svg(plans, marks))
    zero = min(
        float(one.attrib["x"]) for one in root.iter(f"{SVG}text") if one.text == "0"
        and one.attrib.get("text-anchor") == "middle"
    )  # fmt: skip
    squares = [float(one.attrib["x"]) + 5 for one in root.iter(f"{SVG}rect") if "x" in one.attrib]
    near, far = sorted(squares)
    assert far - zero == pytest.approx(2 * (near - zero), abs=0.3)


def test_the_chosen_plan_is_circled_and_named(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=ONE)
    chosen = plan(triangle, *ENDS, MinimizeCost(3.0), limits=ONE)
    root = ElementTree.fromstring(frontier_svg(plans, {}, chosen=chosen))
    (ring,) = circles(root, "chosen")
    dots = circles(root, "plan")
    assert dots[0][0] < ring[0] < dots[-1][0]
    assert f"chosen: {chosen.throughput_gbps:.2f} Gbit/s" in words(root)
    assert not circles(ElementTree.fromstring(frontier_svg(plans, {})), "chosen")


def test_marks_at_one_place_share_a_label(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=3)
    same = direct(triangle, *ENDS)
    root = ElementTree.fromstring(frontier_svg(plans, {"one": same, "other": same}))
    assert "one and other: 2.50 Gbit/s" in words(root)


def test_a_single_plan_has_axes_with_room(triangle: Grid) -> None:
    alone = frontier(triangle, "aws:s", "aws:s")
    root = ElementTree.fromstring(frontier_svg(alone, {}, relaxed=alone.relaxed))
    ((x, y),) = circles(root, "plan")
    assert 0 < x < WIDTH
    assert 0 < y < HEIGHT
    assert "1 plan" in words(root)
    assert not list(root.iter(f"{SVG}polyline"))


def test_labels_do_not_cover_each_other(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=ONE)
    marks = {f"mark {number}": one for number, one in enumerate(plans)}
    root = ElementTree.fromstring(frontier_svg(plans, marks, relaxed=plans.relaxed))
    labels = [
        (float(one.attrib["x"]), float(one.attrib["y"]))
        for one in root.iter(f"{SVG}text")
        if (one.text or "").startswith("mark")
    ]
    assert len(labels) == len(plans)
    for number, (x, y) in enumerate(labels):
        for u, v in labels[:number]:
            assert abs(y - v) >= 14 or abs(x - u) > 200


def test_names_are_escaped(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=2, limits=ONE)
    drawing = frontier_svg(plans, {"<direct>": direct(triangle, *ENDS)})
    assert "<direct>" in words(ElementTree.fromstring(drawing))
