"""Draws a plan as a map in SVG.

Regions are at their geographic position; edges are as wide as their flow. Regions that are too
close are moved apart, and every label takes the place that covers least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.multicast_plan import MulticastPlan
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan

WIDTH, HEIGHT, MARGIN = 960.0, 540.0, 90.0
HEADER = 56.0
RADIUS = 15.0
#: The least distance between two regions.
APART = 120.0
CHARACTER = 7.3
LINE = 15.0
NARROWEST, WIDEST = 1.5, 9.0

SOURCE, SINK, RELAY = "#1b7f5c", "#2f5fb3", "#b3662f"
DIRECT_EDGE, RELAY_EDGE = "#5b6b7b", "#c98a4b"
INK, PAPER = "#1d2530", "#ffffff"

Point = tuple[float, float]
AnyPlan = TransferPlan | MulticastPlan


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Shared area."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, wide) * max(0.0, high)


@dataclass(slots=True)
class _Layout:
    """Positions of the regions, and the boxes that are occupied."""

    places: dict[str, Point]
    taken: list[Box] = field(default_factory=list)

    def put(self, text: str, candidates: Sequence[Point]) -> Point:
        """The centre that overlaps least with occupied boxes; its box is occupied from now on."""
        best = min(candidates, key=lambda candidate: self._crowding(_box(text, candidate)))
        self.taken.append(_box(text, best))
        return best

    def _crowding(self, box: Box) -> float:
        outside = max(0.0, 4 - box.left) + max(0.0, box.right - WIDTH + 4)
        outside += max(0.0, HEADER - box.top) + max(0.0, box.bottom - HEIGHT + 4)
        return sum(box.overlap(other) for other in self.taken) + 100 * outside


def plan_svg(plan: AnyPlan, grid: Grid) -> str:
    """One SVG document that shows the plan.

    If a region has no known position (a custom grid, this machine), the regions are in columns.
    """
    tags = _tags(plan)
    layout = _Layout(_moved_apart(_positions(tags, grid, len(_sinks(plan)))))
    for x, y in layout.places.values():
        layout.taken.append(Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS))
    body = [
        *(_edge_line(plan, edge, layout) for edge in plan.edges),
        *(_region_circle(plan, tag, layout) for tag in tags),
        *(part for tag in tags for part in _region_label(plan, tag, layout)),
        *(part for edge in plan.edges for part in _edge_label(plan, edge, layout)),
    ]
    title = f"{plan.src} to {', '.join(_sinks(plan))}"
    return svg_document(title, [*_arrowheads(), *_header(plan, title), *body])


def svg_document(title: str, body: Sequence[str]) -> str:
    """A drawing on an empty sheet."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}"'
            f' width="{WIDTH:g}" height="{HEIGHT:g}" font-family="sans-serif" font-size="12"'
            f' fill="{INK}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH:g}" height="{HEIGHT:g}" fill="{PAPER}"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def title_lines(title: str, facts: str) -> tuple[str, str]:
    """The two lines at the top of a drawing."""
    return (
        f'<text x="20" y="26" font-size="17" font-weight="bold">{escape(title)}</text>',
        f'<text x="20" y="46">{escape(facts)}</text>',
    )


def _tags(plan: AnyPlan) -> list[str]:
    """Every region of the plan, the ends first."""
    return list(dict.fromkeys([plan.src, *_sinks(plan), *plan.instances]))


def _sinks(plan: AnyPlan) -> tuple[str, ...]:
    return plan.destinations if isinstance(plan, MulticastPlan) else (plan.dst,)


# ---------------------------------------------------------------- where things go


def _positions(tags: Sequence[str], grid: Grid, sinks: int) -> dict[str, Point]:
    """Longitude and latitude scaled to the sheet; columns if a position is unknown."""
    known = {
        tag: (grid.regions[grid.index[tag]].longitude, -grid.regions[grid.index[tag]].latitude)
        for tag in tags
        if tag in grid.index
    }
    if len(known) < len(tags) or any(math.isnan(x) or math.isnan(y) for x, y in known.values()):
        return _in_columns(tags, sinks)
    return _scaled_to_sheet(_across_the_date_line(known))


def _in_columns(tags: Sequence[str], sinks: int) -> dict[str, Point]:
    """The source on the left, the sinks on the right, relays between."""
    ends = tags[1 : 1 + sinks]
    places = {tags[0]: (MARGIN, HEIGHT / 2)}
    for x, column in ((WIDTH - MARGIN, ends), (WIDTH / 2, tags[1 + len(ends) :])):
        for number, tag in enumerate(column):
            share = (number + 1) / (len(column) + 1)
            places[tag] = (x, HEADER + MARGIN / 2 + share * (HEIGHT - HEADER - MARGIN))
    return places


def _across_the_date_line(places: dict[str, Point]) -> dict[str, Point]:
    """Longitudes shifted so that the widest empty stretch is at the border."""
    turn = 360.0
    longitudes = sorted(x for x, _ in places.values())
    gaps = [
        (after - before, after)
        for before, after in zip(longitudes, [*longitudes[1:], longitudes[0] + turn], strict=True)
    ]
    first = max(gaps)[1] % turn
    return {tag: ((x - first) % turn, y) for tag, (x, y) in places.items()}


def _scaled_to_sheet(places: dict[str, Point]) -> dict[str, Point]:
    xs, ys = zip(*places.values(), strict=True)
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - HEADER - 1.4 * MARGIN
    spans = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    scale = min(wide / spans[0], 2.5 * high / spans[1]), min(high / spans[1], 2.5 * wide / spans[0])
    middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return {
        tag: (
            WIDTH / 2 + (x - middle[0]) * scale[0],
            (HEIGHT + HEADER) / 2 + (y - middle[1]) * scale[1],
        )
        for tag, (x, y) in places.items()
    }


def _moved_apart(places: dict[str, Point]) -> dict[str, Point]:
    """Moves regions apart until their distance is APART, or there is no room."""
    now = dict(places)
    for _ in range(200):
        moved = False
        tags = list(now)
        for number, one in enumerate(tags):
            for other in tags[number + 1 :]:
                moved |= _move_pair_apart(now, one, other)
        if not moved:
            break
    return now


def _move_pair_apart(places: dict[str, Point], one: str, other: str) -> bool:
    (x, y), (u, v) = places[one], places[other]
    distance = math.hypot(u - x, v - y)
    if distance >= APART - 1:
        return False
    # Regions at the same point have no direction between them: use a slanted one.
    angle = math.atan2(v - y, u - x) if distance > 1 else 0.6
    step = (APART - distance) / 2
    places[one] = _inside(x - step * math.cos(angle), y - step * math.sin(angle))
    places[other] = _inside(u + step * math.cos(angle), v + step * math.sin(angle))
    return True


def _inside(x: float, y: float) -> Point:
    edge = MARGIN / 2
    return (
        min(max(x, edge), WIDTH - edge),
        min(max(y, HEADER + edge), HEIGHT - edge),
    )


def _box(text: str, centre: Point) -> Box:
    wide = max(len(line) for line in text.split("\n")) * CHARACTER / 2
    high = LINE * (text.count("\n") + 1) / 2
    return Box(centre[0] - wide, centre[1] - high, centre[0] + wide, centre[1] + high)


# ---------------------------------------------------------------- what is drawn


def _header(plan: AnyPlan, title: str) -> tuple[str, str]:
    relays = len(plan.relays)
    facts = [
        f"{plan.throughput_gbps:.2f} Gbit/s",
        f"{plan.cost.usd_per_gb:.4f} USD per GB",
        f"{plan.instance_count} instances",
        f"{relays} relay{'' if relays == 1 else 's'}",
        f"grid {plan.grid.name}, {plan.grid.throughput} rates",
    ]
    return title_lines(title, "  ·  ".join(facts))


def _arrowheads() -> Iterator[str]:
    for name, colour in (("direct", DIRECT_EDGE), ("relay", RELAY_EDGE)):
        yield (
            f'<marker id="to-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="11"'
            ' markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        )


def _bend(plan: AnyPlan, edge: PlanEdge, layout: _Layout) -> tuple[Point, Point, Point]:
    """Start, control point and end of an edge's curve; direct edges bend more."""
    (x, y), (u, v) = layout.places[edge.src], layout.places[edge.dst]
    length = math.hypot(u - x, v - y) or 1.0
    along, across = ((u - x) / length, (v - y) / length), ((v - y) / length, (x - u) / length)
    bow = length * (0.14 if _is_direct(plan, edge) else 0.05)
    middle = ((x + u) / 2 + across[0] * bow, (y + v) / 2 + across[1] * bow)
    start = (x + along[0] * RADIUS, y + along[1] * RADIUS)
    end = (u - along[0] * (RADIUS + 4), v - along[1] * (RADIUS + 4))
    return start, middle, end


def _is_direct(plan: AnyPlan, edge: PlanEdge) -> bool:
    return edge.src == plan.src and edge.dst in _sinks(plan)


def _edge_line(plan: AnyPlan, edge: PlanEdge, layout: _Layout) -> str:
    (x, y), (cx, cy), (u, v) = _bend(plan, edge, layout)
    largest = max(other.flow_gbps for other in plan.edges)
    width = max(NARROWEST, WIDEST * edge.flow_gbps / largest)
    kind, colour = ("direct", DIRECT_EDGE) if _is_direct(plan, edge) else ("relay", RELAY_EDGE)
    return (
        f'<path d="M{x:.1f} {y:.1f}Q{cx:.1f} {cy:.1f} {u:.1f} {v:.1f}" fill="none"'
        f' stroke="{colour}" stroke-width="{width:.1f}" stroke-opacity="0.75"'
        f' marker-end="url(#to-{kind})"/>'
    )


def _edge_label(plan: AnyPlan, edge: PlanEdge, layout: _Layout) -> Iterator[str]:
    text = f"{edge.flow_gbps:.2f} Gbit/s"
    (x, y), (cx, cy), (u, v) = _bend(plan, edge, layout)
    candidates = []
    for share in (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82):
        here, there = (1 - share) ** 2, share**2
        mixed = 2 * share * (1 - share)
        point = (here * x + mixed * cx + there * u, here * y + mixed * cy + there * v)
        candidates.extend([(point[0], point[1] - 12), (point[0], point[1] + 13), point])
    yield from _label(text, layout.put(text, candidates), size=11)


def _region_circle(plan: AnyPlan, tag: str, layout: _Layout) -> str:
    x, y = layout.places[tag]
    colour = {**dict.fromkeys(_sinks(plan), SINK), plan.src: SOURCE}.get(tag, RELAY)
    group = plan.instances.get(tag)
    count = group.count if group else 0
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:g}" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="{PAPER}"'
        f' font-weight="bold">{count}</text>'
    )


def _region_label(plan: AnyPlan, tag: str, layout: _Layout) -> Iterator[str]:
    group = plan.instances.get(tag)
    end = {**dict.fromkeys(_sinks(plan), " (sink)"), plan.src: " (source)"}.get(tag, "")
    text = f"{tag}{end}\n{group.count} x {group.type}" if group else f"{tag}{end}"
    x, y = layout.places[tag]
    wide = _box(text, (0, 0)).right + RADIUS + 4
    below, above = y + RADIUS + LINE + 3, y - RADIUS - LINE - 3
    candidates = [
        (x, below),
        (x, above),
        (x + wide, y),
        (x - wide, y),
        (x + wide * 0.7, below),
        (x - wide * 0.7, below),
        (x + wide * 0.7, above),
        (x - wide * 0.7, above),
    ]
    yield from _label(text, layout.put(text, candidates), size=12)


def _label(text: str, centre: Point, *, size: int) -> Iterator[str]:
    """Centred lines with a halo, legible on top of an edge."""
    lines = text.split("\n")
    top = centre[1] - LINE * (len(lines) - 1) / 2 + size / 3
    for number, line in enumerate(lines):
        weight = ' font-weight="bold"' if number == 0 and len(lines) > 1 else ""
        yield (
            f'<text x="{centre[0]:.1f}" y="{top + number * LINE:.1f}" text-anchor="middle"'
            f' font-size="{size}"{weight} stroke="{PAPER}" stroke-width="3.5"'
            f' paint-order="stroke">{escape(line)}</text>'
        )
