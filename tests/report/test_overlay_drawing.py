"""The overlay as SVG: what is drawn, and where."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from tests.provision.samples import make_plan

from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.report.overlay_drawing import overlay_svg

SVG = "{http://www.w3.org/2000/svg}"
A, B, C, D = "aws:us-east-1", "gcp:us-central1", "azure:westeurope", "gcp:europe-west1"

DIRECT_AND_RELAY = make_plan([((A, C), 2.0), ((A, B, C), 6.0)], {A: 2, B: 3, C: 2})


def drawing(plan: TransferPlan) -> ElementTree.Element:
    return ElementTree.fromstring(overlay_svg(plan))


def circles(plan: TransferPlan) -> list[tuple[float, float]]:
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"]))
        for one in drawing(plan).iter(f"{SVG}circle")
    ]


def texts(plan: TransferPlan) -> list[str]:
    return [one.text or "" for one in drawing(plan).iter(f"{SVG}text")]


def test_regions_have_their_instances_and_edges_their_rates() -> None:
    assert {A, B, C, "3 x process", "2.00 Gbit/s", "6.00 Gbit/s"} <= set(texts(DIRECT_AND_RELAY))
    titles = [one.text or "" for one in drawing(DIRECT_AND_RELAY).iter(f"{SVG}title")]
    assert f"{A} to {C}: 2.00 Gbit/s over 64 connections for 0.0000 USD per GB" in titles


def test_edges_are_as_wide_as_their_flow_and_have_heads() -> None:
    picture = drawing(DIRECT_AND_RELAY)
    lines = [path.attrib for path in picture.iter(f"{SVG}path")]
    widths = sorted(float(line["stroke-width"]) for line in lines)
    assert widths == pytest.approx([8 * 2 / 6, 8.0, 8.0], abs=0.05)
    heads = {f"url(#{marker.attrib['id']})" for marker in picture.iter(f"{SVG}marker")}
    assert {line["marker-end"] for line in lines} == heads


@pytest.mark.parametrize(
    "plan",
    [
        DIRECT_AND_RELAY,
        make_plan([((A, B, D, C), 1.0), ((A, D, B, C), 1.0)], dict.fromkeys((A, B, C, D), 1)),
        make_plan([((A, B, C), 1.0), ((A, D, C), 1.0)], dict.fromkeys((A, B, C, D), 1)),
        make_plan([((A, C), 1.0)], {A: 1, C: 1}),
        make_plan([((A,), 1.0)], {A: 1}),
    ],
    ids=["direct and relay", "relays both ways", "two relays", "direct", "one region"],
)
def test_all_is_on_the_sheet_and_no_region_covers_another(plan: TransferPlan) -> None:
    sheet = drawing(plan).attrib["viewBox"].split()
    width, height = float(sheet[2]), float(sheet[3])
    points = [
        (float(x), float(y))
        for path in drawing(plan).iter(f"{SVG}path")
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path.attrib["d"])[::2]
    ]
    centres = circles(plan)
    assert len(centres) == len(plan.instances)
    for x, y in (*centres, *points):
        assert 0 < x < width
        assert 0 < y < height
    for (x, y), (u, v) in combinations(centres, 2):
        assert abs(x - u) > 150 or abs(y - v) > 60


def test_the_way_leads_from_left_to_right() -> None:
    plan = make_plan([((A, B, D, C), 1.0)], dict.fromkeys((A, B, C, D), 1))
    places = dict(zip(sorted((A, B, C, D)), circles(plan), strict=True))
    assert [x for x, _ in sorted(places.values())] == [110.0, 360.0, 610.0, 860.0]
    assert sorted(places, key=lambda tag: places[tag]) == [A, B, D, C]


def test_names_are_text_whatever_their_characters() -> None:
    plan = replace(DIRECT_AND_RELAY, instances={A: InstanceGroup("<script>&", 1)})
    assert "1 x <script>&" in texts(plan)
