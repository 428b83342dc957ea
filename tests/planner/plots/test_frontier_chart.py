from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
from tests.planner.plots.drawings import centred_texts, corners, groups, places, texts

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.planner import best_relay, direct, frontier, frontier_svg, plan
from skyplane_orchestration.planner.pareto import Frontier
from skyplane_orchestration.planner.plots import HEIGHT, WIDTH

ENDS = ("aws:s", "gcp:t")
ONE = Limits(instance_limit=1)


@pytest.fixture
def plans(triangle: Grid) -> Frontier:
    return frontier(triangle, *ENDS, points=6, limits=ONE)


def test_faster_lies_further_right_and_dearer_higher(plans: Frontier) -> None:
    drawing = frontier_svg(plans, {})
    dots = list(places(drawing, "plan").values())
    assert len(dots) == len(plans) > 2
    for (x, y), (u, v) in pairwise(dots):
        assert 0 < x < u < WIDTH
        assert 0 < v < y < HEIGHT
    assert {"throughput, Gbit/s", "USD per GB", "aws:s to gcp:t"} <= set(texts(drawing))
    for one, group in zip(plans, groups(drawing, "plan").values(), strict=True):
        tooltip = "".join(group.itertext())
        assert f"{one.throughput_gbps:.2f} Gbit/s, {one.cost.usd_per_gb:.4f} USD" in tooltip
        assert f"relays: {', '.join(one.relays) or 'none'}" in tooltip


def test_no_plan_is_drawn_below_the_relaxed_frontier(plans: Frontier) -> None:
    drawing = frontier_svg(plans, {}, relaxed=plans.relaxed)
    (line,) = groups(drawing, "relaxed").values()
    curve = corners(line)
    assert curve == sorted(curve)
    assert len(curve) == len(plans.relaxed)
    dots = list(places(drawing, "plan").values())
    for x, y in dots:
        assert y <= np.interp(x, *np.transpose(curve)) + 1.0
    # Both ends of this frontier are as cheap as the relaxed one.
    assert curve[-1] == pytest.approx(dots[-1], abs=0.3)
    assert "relaxed frontier: no plan lies below" in texts(drawing)


def test_places_are_in_proportion_from_zero(triangle: Grid) -> None:
    marks = {"direct": direct(triangle, *ENDS), "ron": best_relay(triangle, *ENDS)}
    assert marks["ron"].throughput_gbps == pytest.approx(2 * marks["direct"].throughput_gbps)
    drawing = frontier_svg(frontier(triangle, *ENDS, points=2), marks)
    zero = min(x for x, _, text in centred_texts(drawing) if text in ("0", "0.0"))
    near, far = (x for x, _ in places(drawing, "mark").values())
    assert far - zero == pytest.approx(2 * (near - zero), abs=0.3)


def test_the_chosen_plan_has_a_ring_and_a_name(triangle: Grid, plans: Frontier) -> None:
    chosen = plan(triangle, *ENDS, MinimizeCost(3.0), limits=ONE)
    drawing = frontier_svg(plans, {}, chosen=chosen)
    (ring,) = places(drawing, "chosen").values()
    dots = list(places(drawing, "plan").values())
    assert dots[0][0] < ring[0] < dots[-1][0]
    assert any(text.startswith(f"chosen: {chosen.throughput_gbps:.2f}") for text in texts(drawing))
    assert not places(frontier_svg(plans, {}), "chosen")


def test_marks_at_one_place_share_a_name(triangle: Grid, plans: Frontier) -> None:
    same = direct(triangle, *ENDS)
    drawing = frontier_svg(plans, {"one": same, "other": same, "ron": best_relay(triangle, *ENDS)})
    assert len(places(drawing, "mark")) == 2
    price = f"{same.cost.usd_per_gb:.4f}"
    assert f"one and other: 2.50 Gbit/s, {price} USD per GB" in texts(drawing)


def test_a_single_plan_has_axes_with_room(triangle: Grid) -> None:
    alone = frontier(triangle, "aws:s", "aws:s")
    drawing = frontier_svg(alone, {}, relaxed=alone.relaxed)
    ((x, y),) = places(drawing, "plan").values()
    assert 50 < x < WIDTH - 50
    assert 50 < y < HEIGHT - 50
    assert "1 plan" in texts(drawing)
    assert not groups(drawing, "relaxed")


def test_names_are_text_whatever_their_characters(triangle: Grid, plans: Frontier) -> None:
    drawing = frontier_svg(plans, {"<direct> & $x^2$": direct(triangle, *ENDS)})
    assert any(text.startswith("<direct> & $x^2$: ") for text in texts(drawing))


def test_without_matplotlib_the_error_names_the_extra(
    plans: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"skyplane-orchestration\[plots\]"):
        frontier_svg(plans, {})
