"""Draws a plan as a map: regions at their geographic position, edges as wide as their flow.

It needs no drawing library: an orchestrator's web server often has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain, combinations
from typing import Final

import numpy as np

from skyplane_orchestration.formatting import counted, rate
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan
from skyplane_orchestration.planner.plots import HEADER, HEIGHT, WIDTH

# Lengths are in points. A place is (x, y) from the lower left corner of the sheet.
SOURCE, SINK, RELAY = "#1b7f5c", "#2f5fb3", "#b3662f"
DIRECT_EDGE, RELAY_EDGE = "5b6b7b", "c98a4b"
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
#: The head of an arrow. Its tip is 2 beyond the end of the line.
HEAD: Final = (
    '<marker id="head-{0}" viewBox="0 0 12 12" refX="10" refY="6" markerWidth="12"'
    ' markerHeight="12" markerUnits="userSpaceOnUse" orient="auto">'
    '<polygon points="12,6 0,0 0,12" fill="#{0}"/></marker>'
)
#: The look of a text that stays legible on top of an edge.
ON_EDGE: Final = ' stroke="#fff" stroke-width="3" paint-order="stroke"'

#: Centre and size.
Box = tuple[Floats, tuple[float, float]]
#: (2,) the control point of a quadratic curve, and (N, 2) its points at SHARES of its length.
Curve = tuple[Floats, Floats]


def plan_svg(plan: TransferPlan, grid: Grid | None = None) -> str:
    """One SVG element that shows the plan; the same plan gives the same text.

    Without a grid, or if a region has no known position (a custom grid, this machine), the regions
    are in columns.
    """
    facts = (
        f"{plan.throughput_gbps:.2f} Gbit/s",
        f"{plan.cost.usd_per_gb:.4f} USD per GB",
        counted(plan.instance_count, "instance"),
        counted(len(plan.relays), "relay"),
        f"grid {plan.grid.name}, {plan.grid.throughput} rates",
    )
    title = escape(f"{plan.src} to {', '.join(plan.ends[1:])}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH / 0.75:.0f}"'
        f' height="{HEIGHT / 0.75:.0f}" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}"'
        ' font-family="DejaVu Sans, sans-serif" font-size="9" style="background: #fff">'
        f"<title>{title}</title>{''.join(map(HEAD.format, (DIRECT_EDGE, RELAY_EDGE)))}"
        f"{''.join(_parts(plan, grid))}"
        f'<text x="15" y="20" font-size="13" font-weight="bold">{title}</text>'
        f'<text x="15" y="36">{escape("  ·  ".join(facts))}</text></svg>'
    )


def _parts(plan: TransferPlan, grid: Grid | None) -> list[str]:
    """What is drawn below the two title lines, the lowest first."""
    ends = (end for edge in plan.edges for end in (edge.src, edge.dst))
    tags = list(dict.fromkeys([plan.src, *plan.ends[1:], *plan.instances, *ends]))
    labels = [_label(plan, tag) for tag in tags]
    widths = [CHARACTER * max(map(len, label)) for label in labels]
    positions, coast = _positions(plan, tags, grid)
    # In the middle of the sheet; one scale across and upward.
    room = np.array([WIDTH - 2 * SIDE, HEIGHT - BOTTOM - TOP])
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = (room / np.maximum(high - low, LEAST_DEGREES if len(coast) else 1e-6)).min()
    middle = np.array([SIDE, BOTTOM]) + room / 2
    on_sheet, line = (middle + (part - (low + high) / 2) * scale for part in (positions, coast))
    coast = line.round(1)
    places = dict(zip(tags, _moved_apart(on_sheet, widths), strict=True))
    lines = [_coast_path(coast)] if len(coast) else []
    # A line leads from where the region is to its circle.
    lines += [
        f'<circle {_xy(point, "c")} r="2" fill="{COAST}"/>{_line(point, place, COAST, 1.0)}'
        for point, place in zip(on_sheet, places.values(), strict=True)
        if len(coast) and math.dist(point, place) > RADIUS
    ]
    texts = [
        _region(plan, tag, label, places[tag]) for tag, label in zip(tags, labels, strict=True)
    ]
    regions: dict[str, list[Box]] = {}
    for (tag, place), width in zip(places.items(), widths, strict=True):
        below = place - (0, RADIUS + 3 + LINE_HEIGHT), (width, 2 * LINE_HEIGHT)
        regions[tag] = [(place, (2 * RADIUS, 2 * RADIUS)), below]
    taken = list(chain.from_iterable(regions.values()))
    curves = {edge: _curve(edge, places, regions) for edge in plan.edges}
    arrows: list[str] = []
    for edge, (control, points) in curves.items():
        arrows.append(_arrow(plan, edge, places, control))
        others = [curves[other][1] for other in plan.edges if other != edge]
        point, place = _beside(points, taken, [(at, (0.0, 0.0)) for at in chain(*others)])
        taken.append((place, FLOW_SIZE))
        if math.dist(point, place) > LED:
            lines.append(_line(point, place, f"#{DIRECT_EDGE}", 0.6))
        texts.append(_text(place - (0, 3), f"{rate(edge.flow_gbps)} Gbit/s", 8))
    return [*lines, *arrows, *texts]


def _label(plan: TransferPlan, tag: str) -> list[str]:
    """`aws:eu-west-3 (sink)`, and below it the instances."""
    end = " (source)" if tag == plan.src else " (sink)" if tag in plan.ends[1:] else ""
    group = plan.instances.get(tag)
    return [f"{tag}{end}", *([f"{group.count} x {group.type}"] if group else [])]


# ---------------------------------------------------------------- where things are


def _positions(plan: TransferPlan, tags: Sequence[str], grid: Grid | None) -> tuple[Floats, Floats]:
    """(V, 2) longitude and latitude, and (N, 2) those of the coast, with nan before each line.

    If a position is unknown: columns and rows, and no coast.
    """
    regions = [grid.regions[grid.index[tag]] for tag in tags if tag in grid.index] if grid else []
    degrees = np.array([(region.longitude, region.latitude) for region in regions])
    if len(regions) < len(tags) or np.isnan(degrees).any():
        columns = _columns(plan, tags)
        members = [[tag for tag in tags if columns[tag] == columns[one]] for one in tags]
        cells = [
            (columns[tag], -(column.index(tag) + 1) / (len(column) + 1))
            for tag, column in zip(tags, members, strict=True)
        ]
        return np.array(cells), np.empty((0, 2))
    # The map is cut in the middle of the widest gap between longitudes.
    longitudes = np.sort(degrees[:, 0])
    gaps = np.diff(longitudes, prepend=longitudes[-1] - 360)
    cut = longitudes[gaps.argmax()] - gaps.max() / 2
    document = json.loads((files(__package__) / "coastline.json").read_text(encoding="utf-8"))
    lines = [[np.nan, np.nan, *line] for line in document["lines"]]
    coast = np.concatenate(lines).reshape(-1, 2)
    for part in (degrees, coast):
        part[:, 0] = (part[:, 0] - cut) % 360
    coast[np.abs(np.diff(coast[:, 0], prepend=0.0)) > 180] = np.nan
    return degrees, coast


def _columns(plan: TransferPlan, tags: Sequence[str]) -> dict[str, int]:
    """Region tag -> edges from the source; the sinks have the last column."""
    columns = {tag: 0 if tag == plan.src else len(tags) for tag in tags}
    for edge in plan.edges * len(tags):
        columns[edge.dst] = min(columns[edge.dst], columns[edge.src] + 1)
    ends = {plan.src, *plan.ends[1:]}
    last = 1 + max((column for tag, column in columns.items() if tag not in ends), default=0)
    return columns | {tag: last for tag in plan.ends[1:] if tag != plan.src}


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
    for bend in BENDS:
        control = (start + end) / 2 + upward * bend * across
        ends = (1 - SHARES) ** 2 * start + SHARES**2 * end
        points = ends + 2 * SHARES * (1 - SHARES) * control
        if ((points > 0) & (points < (WIDTH, HEIGHT - HEADER))).all():
            curves.append((control, points))
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
    across, upward = (
        np.abs(points[:, None, axis] - centres[:, axis]) * (2 / (sizes + size)[:, axis])
        for axis in (0, 1)
    )
    clearance: Floats = np.minimum(np.maximum(across, upward).min(axis=1), 1.0)
    return clearance


# ---------------------------------------------------------------- what is drawn


def _coast_path(coast: Floats) -> str:
    lines = np.split(coast, np.flatnonzero(np.isnan(coast[:, 0])))
    path = "".join(f"M{' '.join(map(_at, line[1:]))}" for line in lines if len(line) > 1)
    return (
        f'<path id="coast" d="{path}" fill="none" stroke="{COAST}" stroke-width="0.7"/>'
        f'<rect width="{WIDTH:.0f}" height="{HEADER:.0f}" fill="#fff"/>'
    )


def _region(plan: TransferPlan, tag: str, label: Sequence[str], place: Floats) -> str:
    colour = SOURCE if tag == plan.src else SINK if tag in plan.ends[1:] else RELAY
    count = str(plan.instances[tag].count if tag in plan.instances else 0)
    below = place - (0, RADIUS + 11)
    texts = [_text(below - (0, LINE_HEIGHT * row), line) for row, line in enumerate(label)]
    return (
        f'<circle id="region-{escape(tag)}" {_xy(place, "c")} r="{RADIUS:.0f}" fill="{colour}"/>'
        + _text(place - (0, 3), count, look=' fill="#fff" font-weight="bold"')
        + "".join(texts)
    )


def _arrow(
    plan: TransferPlan, edge: PlanEdge, places: Mapping[str, Floats], control: Floats
) -> str:
    is_direct = edge.src == plan.src and edge.dst in plan.ends[1:]
    colour = DIRECT_EDGE if is_direct else RELAY_EDGE
    most_gbps = max(one.flow_gbps for one in plan.edges) or 1.0
    width = max(NARROWEST, WIDEST * edge.flow_gbps / most_gbps)
    # Both ends of the line are at circles.
    start, end = (
        place + (control - place) * gap / math.dist(control, place)
        for place, gap in ((places[edge.src], RADIUS), (places[edge.dst], RADIUS + 4))
    )
    words = (
        f"{edge.src} to {edge.dst}: {rate(edge.flow_gbps)} Gbit/s over"
        f" {counted(edge.connections, 'connection')} for {edge.usd_per_gb:.4f} USD per GB"
    )
    return (
        f'<g id="edge-{escape(edge.src)}-{escape(edge.dst)}"><title>{escape(words)}</title>'
        f'<path d="M{_at(start)} Q{_at(control)} {_at(end)}" fill="none" stroke="#{colour}"'
        f' stroke-opacity=".75" stroke-width="{width:.1f}" marker-end="url(#head-{colour})"/></g>'
    )


def _line(start: Floats, end: Floats, colour: str, width: float) -> str:
    return f'<path d="M{_at(start)} {_at(end)}" stroke="{colour}" stroke-width="{width}"/>'


def _text(place: Floats, text: str, size: int = 9, look: str = ON_EDGE) -> str:
    """Text in the middle above a place."""
    return (
        f'<text {_xy(place)} font-size="{size}"{look} style="text-anchor: middle">'
        f"{escape(text)}</text>"
    )


def _xy(place: Floats, prefix: str = "") -> str:
    return f'{prefix}x="{place[0]:.1f}" {prefix}y="{HEIGHT - place[1]:.1f}"'


def _at(place: Floats) -> str:
    """`x,y` from the upper left corner."""
    return f"{place[0]:.1f},{HEIGHT - place[1]:.1f}"
