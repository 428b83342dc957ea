"""A plan as Markdown."""

from __future__ import annotations

import base64
from dataclasses import replace

from tests.transfer.samples import PRICED_PLAN, A, B, R

from skyplane_orchestration.dagster.metadata import plan_image_markdown, plan_markdown
from skyplane_orchestration.model.plan import InstanceGroup, PlanEdge, PlanPath
from skyplane_orchestration.planner import plan_svg

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


def test_the_markdown_has_a_bar_for_each_path() -> None:
    lines = plan_markdown(RELAYED).splitlines()
    assert lines[0].startswith("**3.00 Gbit/s for 0.0000 USD per GB on")
    assert lines[3] == f"  2.00 Gbit/s {'█' * 16} {A} → {R} → {B}"
    assert lines[4] == f"  1.00 Gbit/s {'█' * 8}{' ' * 8} {A} → {B}"


def test_a_path_of_almost_no_flow_has_a_bar() -> None:
    thin = replace(RELAYED, paths=(*RELAYED.paths, PlanPath((A, B), 0.001)))
    assert plan_markdown(thin).count("█") == 16 + 8 + 1


def test_within_one_region_the_path_is_the_region() -> None:
    inside = replace(RELAYED, dst=A, edges=(), paths=(PlanPath((A,), 3.0),))
    assert f" {A}" in plan_markdown(inside)


def test_the_image_is_the_picture() -> None:
    text = plan_image_markdown(RELAYED)
    assert text.startswith(f"![plan from {A} to {B}](data:image/svg+xml;base64,")
    data = text.partition("base64,")[2].removesuffix(")")
    assert base64.b64decode(data).decode() == plan_svg(RELAYED)
