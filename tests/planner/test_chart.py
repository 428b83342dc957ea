from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits
from skyplane_orchestration.planner import best_relay, direct, frontier, frontier_svg
from skyplane_orchestration.planner.picture import HEIGHT, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
ENDS = ("aws:s", "gcp:t")


def test_faster_lies_further_right_and_dearer_higher(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=Limits(instance_limit=1))
    assert len(plans) > 2
    root = ElementTree.fromstring(frontier_svg(plans, {}))
    found = [
        (float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{SVG}circle")
    ]
    assert len(found) == len(plans)
    assert found == sorted(found)
    assert found == sorted(found, key=lambda place: -place[1])
    for x, y in found:
        assert 0 < x < WIDTH
        assert 0 < y < HEIGHT


def test_places_are_in_proportion_from_zero(triangle: Grid) -> None:
    marks = {"direct": direct(triangle, *ENDS), "ron": best_relay(triangle, *ENDS)}
    assert marks["ron"].throughput_gbps == pytest.approx(2 * marks["direct"].throughput_gbps)
    plans = frontier(triangle, *ENDS, points=2, limits=Limits(instance_limit=1))
    root = ElementTree.fromstring(frontier_svg(plans, marks))
    zero = min(
        float(one.attrib["x"]) for one in root.iter(f"{SVG}text") if one.text == "0"
        and one.attrib.get("text-anchor") == "middle"
    )  # fmt: skip
    squares = [float(one.attrib["x"]) + 5 for one in root.iter(f"{SVG}rect") if "x" in one.attrib]
    near, far = sorted(squares)
    assert far - zero == pytest.approx(2 * (near - zero), abs=0.3)


def test_names_are_escaped(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=2, limits=Limits(instance_limit=1))
    drawing = frontier_svg(plans, {"<direct>": direct(triangle, *ENDS)})
    assert "<direct>" in "".join(ElementTree.fromstring(drawing).itertext())
