from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import MinimizeCost
from skyplane_orchestration.planner import multicast_plan, plan_svg
from skyplane_orchestration.planner.plots.plan_map import SINK, WIDTH

SVG = "{http://www.w3.org/2000/svg}"


def test_sinks_stand_on_the_right_where_no_region_has_a_position(
    small_grid: Callable[..., Grid],
) -> None:
    grid = small_grid({("aws:s", "gcp:a"): (4.0, 0.1), ("gcp:a", "gcp:b"): (4.0, 0.01)})
    drawn = plan_svg(multicast_plan(grid, "aws:s", ["gcp:a", "gcp:b"], MinimizeCost(1.0)), grid)
    root = ElementTree.fromstring(drawn)
    sinks = [one for one in root.iter(f"{SVG}circle") if one.attrib["fill"] == SINK]
    assert len(sinks) == 2
    assert all(float(one.attrib["cx"]) > WIDTH / 2 for one in sinks)
    assert len({one.attrib["cy"] for one in sinks}) == 2
    words = "".join(root.itertext())
    assert "aws:s to gcp:a, gcp:b" in words
    assert words.count("(sink)") == 2
