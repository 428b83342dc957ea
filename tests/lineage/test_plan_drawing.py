"""A plan as Markdown and as a picture."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from dataclasses import replace

from tests.transfer.samples import PRICED_PLAN, A, B, R

from skyplane_orchestration.lineage.plan_drawing import (
    plan_image_markdown,
    plan_markdown,
    plan_svg,
)
from skyplane_orchestration.model.plan import InstanceGroup, PlanEdge, PlanPath, TransferPlan

#: Two thirds go by a relay.
RELAYED = replace(
    PRICED_PLAN,
    throughput_gbps=3.0,
    instances={tag: InstanceGroup("m5.large", 2) for tag in (A, R, B)},
    edges=(
        PlanEdge(A, R, 2.0, 40, 5.0, 0.05),
        PlanEdge(R, B, 2.0, 40, 5.0, 0.08),
        PlanEdge(A, B, 1.0, 20, 1.0, 0.1),
    ),
    paths=(PlanPath((A, R, B), 2.0), PlanPath((A, B), 1.0)),
)


def shapes(plan: TransferPlan, name: str) -> list[ET.Element]:
    return ET.fromstring(plan_svg(plan)).findall(f"{{http://www.w3.org/2000/svg}}{name}")


def texts(plan: TransferPlan) -> list[str]:
    return [str(text.text) for text in shapes(plan, "text")]


def test_the_markdown_has_a_bar_for_each_path() -> None:
    lines = plan_markdown(RELAYED).splitlines()
    assert lines[0].startswith("**3.00 Gbit/s for 0.0000 USD per GB on")
    assert lines[3] == f"  2.00 Gbit/s {'█' * 16} {A} → {R} → {B}"
    assert lines[4] == f"  1.00 Gbit/s {'█' * 8}{' ' * 8} {A} → {B}"


def test_a_path_of_almost_no_flow_has_a_bar() -> None:
    thin = replace(RELAYED, paths=(*RELAYED.paths, PlanPath((A, B), 0.001)))
    assert plan_markdown(thin).count("█") == 16 + 8 + 1


def test_the_picture_has_all_regions_and_rates() -> None:
    assert {A, R, B, "2.00 Gbit/s", "1.00 Gbit/s", "2 x m5.large"} == set(texts(RELAYED))
    widths = [float(line.get("stroke-width", "")) for line in shapes(RELAYED, "polyline")]
    assert widths[0] == 2 * widths[1]
    assert len(shapes(RELAYED, "circle")) == 3


def test_each_path_has_a_row_of_its_own() -> None:
    rows = {line.get("points", "").split()[1].split(",")[1] for line in shapes(RELAYED, "polyline")}
    assert len(rows) == 2


def test_within_one_region_there_is_no_line() -> None:
    inside = replace(
        RELAYED, dst=A, edges=(), paths=(PlanPath((A,), 3.0),),
        instances={A: InstanceGroup("m5.large", 2)},
    )  # fmt: skip
    assert texts(inside) == [A, "2 x m5.large"]
    assert shapes(inside, "polyline") == []
    assert f" {A}" in plan_markdown(inside)


def test_the_image_is_the_picture() -> None:
    text = plan_image_markdown(RELAYED)
    assert text.startswith(f"![plan from {A} to {B}](data:image/svg+xml;base64,")
    data = text.partition("base64,")[2].removesuffix(")")
    assert base64.b64decode(data).decode() == plan_svg(RELAYED)
