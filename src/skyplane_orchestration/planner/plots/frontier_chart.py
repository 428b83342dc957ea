"""Draws a frontier as a chart of price over throughput, in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.plots.plan_map import (
    HEADER,
    HEIGHT,
    PAPER,
    RELAY,
    SINK,
    SOURCE,
    WIDTH,
    Box,
    svg_document,
    title_lines,
)
from skyplane_orchestration.planner.relaxed_frontier import RelaxedFrontier

LEFT, RIGHT, TOP, BOTTOM = 90.0, 40.0, HEADER + 44.0, 60.0
GRID_LINE: Final = "#dde2e8"
BOUND_LINE: Final = "#8a97a8"
CHOSEN: Final = "#b0304f"
#: Approximate number of grid lines per axis.
_LINES: Final = 6
#: Colours of the marked plans, in order.
_MARKS: Final = (SOURCE, RELAY, "#6b4fa0", "#2b8ca3")
#: An axis starts at zero unless all values are above this share of the largest.
_FAR_FROM_ZERO: Final = 0.4
#: The least span of an axis, relative to its end, and the fewest steps on it.
_NARROWEST: Final = 0.2
_FEWEST: Final = 2
#: Points of the relaxed frontier between two breakpoints, where it is a curve.
_STEPS: Final = 40
#: More plans than this have smaller dots.
_MANY: Final = 40
_LABEL_HEIGHT: Final = 15.0
#: Average width of a character in the labels.
_CHARACTER: Final = 6.4

Point = tuple[float, float]


def frontier_svg(
    plans: Sequence[TransferPlan],
    marks: Mapping[str, TransferPlan],
    *,
    relaxed: RelaxedFrontier | None = None,
    chosen: TransferPlan | None = None,
) -> str:
    """One SVG document: plans as dots, the relaxed frontier as a line, marks with their names.

    Args:
        plans: at least one, by ascending rate, as `frontier` returns them.
        marks: name -> a plan to compare with. Marks at the same place share a label.
        relaxed: the bound below which there is no plan.
        chosen: the plan of an objective; it has a ring.
    """
    scale = _scale_of(plans, [*marks.values(), *([chosen] if chosen else [])], relaxed)
    title = f"{plans[0].src} to {plans[0].dst}"
    bound = _bound(scale, relaxed)
    squares = _squares(scale, marks)
    labelled = [(place, words, colour) for place, (words, colour) in squares.items()]
    if chosen is not None:
        labelled.append((scale.place(chosen), _label("chosen", chosen), CHOSEN))
    grid = plans[0].grid
    body = [
        *title_lines(title, f"price over throughput  ·  grid {grid.name} of {grid.as_of}"),
        *_legend(len(plans), bool(bound)),
        *_axes(scale),
        *_curve(bound),
        *(_square(place, colour) for place, (_, colour) in squares.items()),
        *_dots(scale, plans),
        *([_ring(scale.place(chosen))] if chosen else []),
        *_labels(labelled, [*bound, *(scale.place(plan) for plan in plans)]),
    ]
    return svg_document(title, body)


class _Scale:
    """Converts Gbit/s and USD per GB to coordinates, from the round numbers on both axes."""

    def __init__(self, across: Sequence[float], upward: Sequence[float]) -> None:
        self.across = across
        self.upward = upward

    def x(self, gbps: float) -> float:
        share = (gbps - self.across[0]) / (self.across[-1] - self.across[0])
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def y(self, usd_per_gb: float) -> float:
        share = (usd_per_gb - self.upward[0]) / (self.upward[-1] - self.upward[0])
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def place(self, plan: TransferPlan) -> Point:
        return self.x(plan.throughput_gbps), self.y(plan.cost.usd_per_gb)


def _scale_of(
    plans: Sequence[TransferPlan],
    others: Sequence[TransferPlan],
    relaxed: RelaxedFrontier | None,
) -> _Scale:
    rates = [plan.throughput_gbps for plan in (*plans, *others)]
    prices = [plan.cost.usd_per_gb for plan in (*plans, *others)]
    if relaxed is not None and relaxed.points:
        prices.append(relaxed.points[0][1])
    return _Scale(_ticks(min(rates), max(rates)), _ticks(min(prices), max(prices)))


def _ticks(least: float, most: float) -> list[float]:
    """Round numbers around both values, from zero unless both are far from it."""
    if most <= 0:
        return [0.0, 1.0]
    start = least if least > _FAR_FROM_ZERO * most else 0.0
    rough = max(most - start, _NARROWEST * most) / _LINES
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.floor(start / step), math.ceil(most / step)
    if last - first < _FEWEST:
        first, last = max(first - 1, 0), last + 1
    return [number * step for number in range(first, last + 1)]


def _axes(scale: _Scale) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for gbps in scale.across:
        x = scale.x(gbps)
        yield _line(x, TOP, x, bottom)
        yield f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{gbps:g}</text>'
    for usd_per_gb in scale.upward:
        y = scale.y(usd_per_gb)
        yield _line(LEFT, y, WIDTH - RIGHT, y)
        yield f'<text x="{LEFT - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{usd_per_gb:g}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield (
        f'<text x="{middle:.1f}" y="{HEIGHT - 14:.1f}" text-anchor="middle">'
        "throughput, Gbit/s</text>"
    )
    yield f'<text x="20" y="{TOP - 10:.1f}">USD per GB</text>'


def _line(x: float, y: float, u: float, v: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" stroke="{GRID_LINE}"/>'


def _legend(plans: int, has_bound: bool) -> Iterator[str]:
    """The legend, at the right of the header."""
    y = HEADER + 8
    words = f"{plans} plan{'s' if plans > 1 else ''}"
    x = WIDTH - RIGHT - len(words) * _CHARACTER
    yield f'<text x="{x:.1f}" y="{y + 4:.1f}">{words}</text>'
    yield _dot((x - 10, y), 4.0, "")
    if has_bound:
        words = "relaxed frontier: no plan lies below"
        x -= 40 + len(words) * _CHARACTER
        yield f'<text x="{x:.1f}" y="{y + 4:.1f}">{words}</text>'
        yield (
            f'<path d="M{x - 32:.1f} {y:.1f}L{x - 8:.1f} {y:.1f}" stroke="{BOUND_LINE}"'
            ' stroke-width="2"/>'
        )


def _bound(scale: _Scale, relaxed: RelaxedFrontier | None) -> list[Point]:
    """Points of the least price at every rate; between breakpoints it is part of a hyperbola."""
    if relaxed is None or not relaxed.points:
        return []
    start = scale.across[0]
    rates = [start, *(gbps for gbps, _ in relaxed.points if gbps > start)]
    steps = [
        slow + (fast - slow) * step / _STEPS
        for slow, fast in pairwise(rates)
        for step in range(_STEPS + 1)
    ]
    least = relaxed.points[0][1]
    return [
        (scale.x(gbps), scale.y(relaxed.usd_per_gb_at(gbps) if gbps > 0 else least))
        for gbps in steps
    ]


def _curve(places: Sequence[Point]) -> Iterator[str]:
    if places:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{points}" fill="none" stroke="{BOUND_LINE}" stroke-width="2"/>'


def _dots(scale: _Scale, plans: Sequence[TransferPlan]) -> Iterator[str]:
    radius = 2.5 if len(plans) > _MANY else 4.0
    for plan in plans:
        facts = (
            f"{plan.throughput_gbps:.2f} Gbit/s, {plan.cost.usd_per_gb:.4f} USD per GB,"
            f" {plan.instance_count} instances, relays: {', '.join(plan.relays) or 'none'}"
        )
        yield _dot(scale.place(plan), radius, f"<title>{escape(facts)}</title>")


def _dot(place: Point, radius: float, inside: str) -> str:
    """A plan; without content, the legend's dot."""
    kind = "plan" if inside else "legend"
    return (
        f'<circle class="{kind}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}"'
        f' fill="{SINK}">{inside}</circle>'
    )


def _ring(place: Point) -> str:
    return (
        f'<circle class="chosen" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="9" fill="none"'
        f' stroke="{CHOSEN}" stroke-width="2.5"/>'
    )


# ---------------------------------------------------------------- marks and their names


def _squares(scale: _Scale, marks: Mapping[str, TransferPlan]) -> dict[Point, tuple[str, str]]:
    """Point -> label and colour; marks within a pixel of each other are one."""
    names: dict[Point, list[str]] = {}
    plans: dict[Point, TransferPlan] = {}
    for name, plan in marks.items():
        x, y = scale.place(plan)
        place = next((p for p in names if math.dist(p, (x, y)) < 1.0), (x, y))
        names.setdefault(place, []).append(name)
        plans.setdefault(place, plan)
    return {
        place: (_label(" and ".join(here), plans[place]), _MARKS[number % len(_MARKS)])
        for number, (place, here) in enumerate(names.items())
    }


def _label(name: str, plan: TransferPlan) -> str:
    return f"{name}: {plan.throughput_gbps:.2f} Gbit/s, {plan.cost.usd_per_gb:.4f} USD per GB"


def _square(place: Point, colour: str) -> str:
    x, y = place
    return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>'


def _labels(labelled: Sequence[tuple[Point, str, str]], dots: Sequence[Point]) -> Iterator[str]:
    """Labels, each where it covers least of the plans, the bound, the marks and other labels."""
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    taken += [Box(x - 10, y - 10, x + 10, y + 10) for (x, y), _, _ in labelled]
    for place, words, colour in labelled:
        wide = len(words) * _CHARACTER
        box = min(_label_boxes(place, wide), key=lambda box_: _covered(box_, taken))
        taken.append(box)
        yield (
            f'<text x="{box.left:.1f}" y="{box.bottom - 4:.1f}" fill="{colour}" stroke="{PAPER}"'
            f' stroke-width="3.5" paint-order="stroke">{escape(words)}</text>'
        )


def _label_boxes(place: Point, wide: float) -> Iterator[Box]:
    """Boxes around a point, the nearest first: right and left of it, above and below."""
    for away in range(6):
        up = away * (_LABEL_HEIGHT + 3)
        for top in {place[1] - _LABEL_HEIGHT / 2 - up: 0, place[1] - _LABEL_HEIGHT / 2 + up: 0}:
            for left in (place[0] + 13, place[0] - 13 - wide, place[0] - wide / 2):
                yield Box(left, top, left + wide, top + _LABEL_HEIGHT)


def _covered(box: Box, taken: Sequence[Box]) -> float:
    """Area shared with other boxes; area outside of the chart counts more."""
    outside = max(0.0, LEFT - box.left) + max(0.0, box.right - WIDTH + 4)
    outside += max(0.0, TOP - 8 - box.top) + max(0.0, box.bottom - HEIGHT + BOTTOM)
    return sum(box.overlap(other) for other in taken) + 1000.0 * outside
