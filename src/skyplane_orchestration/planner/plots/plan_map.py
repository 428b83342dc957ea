"""Draws a plan as a map: regions at their geographic position, edges as wide as their flow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skyplane_orchestration.formatting import counted
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.model.multicast_plan import MulticastPlan
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan
from skyplane_orchestration.planner.plots.sheet import HEADER, HEIGHT, WIDTH, svg_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in points. A place is (x, y) from the lower left corner of the sheet.
SOURCE, SINK, RELAY = "#1b7f5c", "#2f5fb3", "#b3662f"
DIRECT_EDGE, RELAY_EDGE = "#5b6b7b", "#c98a4b"
NARROWEST, WIDEST = 1.2, 7.0
RADIUS: Final = 11.0
#: Average width of a character, height of a line, and of a region with an edge below its text.
CHARACTER, LINE_HEIGHT, REGION_HEIGHT = 5.6, 12.0, 88.0
#: Size of the text at an edge.
FLOW_SIZE: Final = (66.0, 14.0)
#: The border of the sheet, in which no region's circle is.
SIDE, BOTTOM, TOP = 85.0, 48.0, HEADER + 22.0
#: The least that a map spans, so that one of near regions has some coast.
LEAST_DEGREES: Final = 24.0
COAST: Final = "#cdd6df"
#: Bends of an edge, the best first: distance from the straight line, relative to its length.
BENDS: Final = (0.12, 0.24, -0.12, 0.36, -0.24, 0.0, 0.5, -0.36, 0.65, -0.5, 0.8, -0.65)
#: Points of an edge as shares of its length, and those where its text can be, the best first.
SHARES: Final = np.linspace(0, 1, 161)[:, None]
FLOW_POINTS: Final = sorted(range(12, 149), key=lambda number: abs(number - 80))
#: How far a text may be beside its edge, the best first; then a line leads to it.
ASIDE: Final = (0.0, 14.0, -14.0, 26.0, -26.0, 40.0, -40.0, 60.0, -60.0, 85.0, -85.0)
LED: Final = 10.0

AnyPlan = TransferPlan | MulticastPlan
#: Centre and size.
Box = tuple[Floats, tuple[float, float]]
#: The bend of an edge, and (N, 2) its points at SHARES of its length.
Curve = tuple[float, Floats]


def plan_svg(plan: AnyPlan, grid: Grid) -> str:
    """One SVG document that shows the plan. Raises MissingExtra without matplotlib.

    If a region has no known position (a custom grid, this machine), the regions are in columns.
    """
    facts = (
        f"{plan.throughput_gbps:.2f} Gbit/s",
        f"{plan.cost.usd_per_gb:.4f} USD per GB",
        counted(plan.instance_count, "instance"),
        counted(len(plan.relays), "relay"),
        f"grid {plan.grid.name}, {plan.grid.throughput} rates",
    )
    title = f"{plan.src} to {', '.join(_sinks(plan))}"
    return svg_document(title, "  ·  ".join(facts), partial(_draw, plan, grid))


def _draw(plan: AnyPlan, grid: Grid, figure: Figure) -> None:
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.set_axis_off()
    tags = list(dict.fromkeys([plan.src, *_sinks(plan), *plan.instances]))
    labels = [_label(plan, tag) for tag in tags]
    widths = [CHARACTER * max(map(len, label.split("\n"))) for label in labels]
    positions, coast = _positions(tags, grid, len({*_sinks(plan)} - {plan.src}))
    on_sheet, coast = _on_sheet(positions, coast)
    below = figure.add_axes((0, 0, 1, 1 - HEADER / HEIGHT), zorder=-1)
    below.set(xlim=(0, WIDTH), ylim=(0, HEIGHT - HEADER))
    below.set_axis_off()
    below.plot(*coast.T, color=COAST, linewidth=0.7, gid="coast")
    places = dict(zip(tags, _moved_apart(on_sheet, widths), strict=True))
    for point, place in zip(on_sheet, places.values(), strict=True):
        # A line leads from where the region is to its circle.
        if len(coast) and math.dist(point, place) > RADIUS:
            line = zip(point, place, strict=True)
            axes.plot(*line, "o-", color=COAST, markersize=4, markevery=[0], linewidth=1, zorder=0)
    regions: dict[str, list[Box]] = {}
    for tag, label, width in zip(tags, labels, widths, strict=True):
        _draw_region(axes, plan, tag, label, places[tag])
        text = places[tag] - (0, RADIUS + 3 + LINE_HEIGHT)
        circle = places[tag], (2 * RADIUS, 2 * RADIUS)
        regions[tag] = [circle, (text, (width, 2 * LINE_HEIGHT))]
    taken = list(chain.from_iterable(regions.values()))
    curves = {edge: _curve(edge, places, regions) for edge in plan.edges}
    for edge, (bend, points) in curves.items():
        _draw_edge(axes, plan, edge, places, bend)
        others = [curves[other][1] for other in plan.edges if other != edge]
        lines = [(point, (0.0, 0.0)) for line in others for point in line]
        point, place = _beside(points, taken, lines)
        taken.append((place, FLOW_SIZE))
        if math.dist(point, place) > LED:
            axes.plot(*zip(point, place, strict=True), color=DIRECT_EDGE, linewidth=0.6, zorder=0)
        _write(axes, place, f"{edge.flow_gbps:.2f} Gbit/s", va="center", fontsize=8)


def _sinks(plan: AnyPlan) -> tuple[str, ...]:
    return plan.destinations if isinstance(plan, MulticastPlan) else (plan.dst,)


def _label(plan: AnyPlan, tag: str) -> str:
    """`aws:eu-west-3 (sink)`, and below it the instances."""
    end = " (source)" if tag == plan.src else " (sink)" if tag in _sinks(plan) else ""
    group = plan.instances.get(tag)
    return f"{tag}{end}\n{group.count} x {group.type}" if group else f"{tag}{end}"


# ---------------------------------------------------------------- where things are


def _positions(tags: Sequence[str], grid: Grid, sinks: int) -> tuple[Floats, Floats]:
    """(V, 2) longitude and latitude, and (N, 2) those of the coast, with nan between its lines.

    If a position is unknown: columns and rows, and no coast.
    """
    regions = [grid.regions[grid.index[tag]] for tag in tags if tag in grid.index]
    degrees = np.array([(region.longitude, region.latitude) for region in regions])
    if len(regions) < len(tags) or np.isnan(degrees).any():
        # The source on the left, then the sinks on the right, then the relays between.
        columns = [(0, 1), (2, sinks), (1, len(tags) - 1 - sinks)]
        cells = [(x, -(row + 1) / (rows + 1)) for x, rows in columns for row in range(rows)]
        return np.array(cells), np.empty((0, 2))
    # The map is cut in the middle of the widest gap between longitudes.
    longitudes = np.sort(degrees[:, 0])
    gaps = np.diff(longitudes, prepend=longitudes[-1] - 360)
    cut = longitudes[gaps.argmax()] - gaps.max() / 2
    coast = _coastline()
    for part in (degrees, coast):
        part[:, 0] = (part[:, 0] - cut) % 360
    coast[np.abs(np.diff(coast[:, 0], prepend=0.0)) > 180] = np.nan
    return degrees, coast


def _coastline() -> Floats:
    """(N, 2) longitude and latitude, with nan after each line."""
    document = json.loads((files(__package__) / "coastline.json").read_text(encoding="utf-8"))
    lines = [[*line, np.nan, np.nan] for line in document["lines"]]
    return np.concatenate(lines).reshape(-1, 2)


def _on_sheet(positions: Floats, coast: Floats) -> tuple[Floats, Floats]:
    """Places of both, the positions in the middle of the sheet; one scale across and upward."""
    room = np.array([WIDTH - 2 * SIDE, HEIGHT - BOTTOM - TOP])
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = (room / np.maximum(high - low, LEAST_DEGREES if len(coast) else 1e-6)).min()
    middle = np.array([SIDE, BOTTOM]) + room / 2
    places, line = (middle + (part - (low + high) / 2) * scale for part in (positions, coast))
    return places, line.round(1)


def _moved_apart(places: Floats, widths: Sequence[float]) -> Floats:
    """(V, 2) places such that no region covers another, if the sheet has enough room."""
    places = places.copy()
    for _ in range(200):
        for one, other in combinations(range(len(places)), 2):
            apart = places[other] - places[one]
            need = np.array([(widths[one] + widths[other]) / 2, REGION_HEIGHT])
            lack = need - np.abs(apart)
            if (lack > 0).all():
                axis = lack.argmin()
                step = np.copysign(lack[axis] / 2, apart[axis])
                places[one, axis] -= step
                places[other, axis] += step
        places = places.clip((SIDE, BOTTOM), (WIDTH - SIDE, HEIGHT - TOP))
    return places


def _curve(
    edge: PlanEdge, places: Mapping[str, Floats], regions: Mapping[str, Sequence[Box]]
) -> Curve:
    """The line on the sheet that passes by all other regions, or else is furthest from them."""
    start, end = places[edge.src], places[edge.dst]
    across = np.array([start[1] - end[1], end[0] - start[0]])
    upward = 1 if end[0] >= start[0] else -1
    others = [box for tag in regions if tag not in (edge.src, edge.dst) for box in regions[tag]]
    curves: list[Curve] = []
    for bend in (upward * bend for bend in BENDS):
        control = (start + end) / 2 + bend * across
        ends = (1 - SHARES) ** 2 * start + SHARES**2 * end
        points = ends + 2 * SHARES * (1 - SHARES) * control
        if ((points > 0) & (points < (WIDTH, HEIGHT - HEADER))).all():
            curves.append((bend, points))
    size = 2 * WIDEST, 2 * WIDEST
    return max(curves, key=lambda curve: _clearance(curve[1], others, size).min())


def _beside(curve: Floats, taken: Sequence[Box], lines: Sequence[Box]) -> tuple[Floats, Floats]:
    """A point of an edge, and the place for its text that is clear of other edges and of texts, as
    near as there is one."""
    along = np.gradient(curve, axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    points, across = curve[FLOW_POINTS], across[FLOW_POINTS]
    best = (-1.0, points[0], points[0])
    for aside in ASIDE:
        places = points + aside * across
        half = np.array(FLOW_SIZE) / 2
        is_on_sheet = ((places > half) & (places < (WIDTH, HEIGHT - HEADER) - half)).all(axis=1)
        clear = np.where(is_on_sheet, _clearance(places, [*taken, *lines], FLOW_SIZE), -1.0)
        for share in (0.25, 0.5, 0.75) if aside else ():
            clear = np.minimum(
                clear, _clearance(points + share * aside * across, lines, (6.0, 6.0))
            )
        number = int(clear.argmax())
        if clear[number] > best[0]:
            best = (float(clear[number]), points[number], places[number])
        if best[0] >= 1:
            break
    return best[1], best[2]


def _clearance(
    points: Floats, boxes: Sequence[Box], size: tuple[float, float] = (0.0, 0.0)
) -> Floats:
    """(N,) 1 where something of a size covers no box; less, the nearer it is to a box's middle."""
    if not boxes:
        return np.ones(len(points))
    centres, sizes = (np.array(part) for part in zip(*boxes, strict=True))
    away = 2 * np.abs(points[:, None] - centres) / (sizes + size)
    clearance: Floats = np.minimum(away.max(axis=2).min(axis=1), 1.0)
    return clearance


# ---------------------------------------------------------------- what is drawn


def _draw_region(axes: Axes, plan: AnyPlan, tag: str, label: str, place: Floats) -> None:
    colour = SOURCE if tag == plan.src else SINK if tag in _sinks(plan) else RELAY
    x, y = place
    axes.plot(x, y, "o", color=colour, markersize=2 * RADIUS, gid=f"region-{tag}")
    count = str(plan.instances[tag].count if tag in plan.instances else 0)
    axes.text(x, y, count, color="white", fontweight="bold", ha="center", va="center_baseline")
    for number, line in enumerate(label.split("\n")):
        _write(axes, place - (0, RADIUS + 3 + LINE_HEIGHT * number), line, va="top")


def _draw_edge(
    axes: Axes, plan: AnyPlan, edge: PlanEdge, places: Mapping[str, Floats], bend: float
) -> None:
    is_direct = edge.src == plan.src and edge.dst in _sinks(plan)
    width = max(NARROWEST, WIDEST * edge.flow_gbps / max(one.flow_gbps for one in plan.edges))
    look = {
        "arrowstyle": f"simple,tail_width={width},head_width={width + 6},head_length=10",
        "connectionstyle": f"arc3,rad={-bend}",
        "mutation_scale": 1,
        "linewidth": 0,
        "facecolor": DIRECT_EDGE if is_direct else RELAY_EDGE,
        "alpha": 0.75,
        "shrinkA": RADIUS,
        "shrinkB": RADIUS + 2,
        "gid": f"edge-{edge.src}-{edge.dst}",
    }
    start, end = tuple(places[edge.src]), tuple(places[edge.dst])
    axes.annotate("", end, start, arrowprops=look, zorder=1)


def _write(axes: Axes, place: Floats, text: str, **look: Any) -> None:
    """Text that stays legible on top of an edge."""
    ground = {"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0, "alpha": 0.7}
    axes.text(place[0], place[1], text, ha="center", bbox=ground, **look)
