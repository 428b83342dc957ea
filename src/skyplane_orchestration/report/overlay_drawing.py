"""Draws the overlay of a plan as SVG, without any drawing library.

The source is on the left, the sink on the right, relays between them. `planner.plots` draws maps,
which need matplotlib; an orchestrator's web server often does not have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Final

from skyplane_orchestration.formatting import counted, rate
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan
from skyplane_orchestration.report.html import Html

# Lengths are in pixels, from the upper left corner.
_COLUMN, _ROW, _SIDE, _TOP, _RADIUS = 250.0, 96.0, 110.0, 46.0, 17.0
#: How far a line bends away from the straight one.
_BEND: Final = 18.0
#: How far the lines that pass by whole columns are apart.
_LANE: Final = 22.0
_NARROWEST, _WIDEST = 1.5, 8.0
_SOURCE, _SINK, _RELAY = "#1b7f5c", "#2f5fb3", "#b3662f"
_DIRECT_EDGE, _RELAY_EDGE = "5b6b7b", "c98a4b"
#: The head of an arrow. Its tip is 3 beyond the end of the line.
_HEAD: Final = (
    '<marker id="head-{0}" viewBox="0 0 14 14" refX="11" refY="7" markerWidth="14"'
    ' markerHeight="14" markerUnits="userSpaceOnUse" orient="auto">'
    '<polygon points="14,7 0,0 0,14" fill="#{0}"/></marker>'
)

Place = tuple[float, float]


def overlay_svg(plan: TransferPlan) -> Html:
    """An SVG element: regions with their instances, edges as wide as their flow."""
    columns = _columns(plan)
    passing = [edge for edge in plan.edges if columns[edge.dst] - columns[edge.src] > 1]
    lanes = {edge: number for number, edge in enumerate(passing)}
    places = _places(columns, _TOP + _LANE * len(passing))
    width = _SIDE * 2 + _COLUMN * max(columns.values())
    height = max(y for _, y in places.values()) + _ROW * 0.75
    most_gbps = max((edge.flow_gbps for edge in plan.edges), default=1.0) or 1.0
    parts = [_HEAD.format(colour) for colour in (_DIRECT_EDGE, _RELAY_EDGE)]
    parts += [
        _edge(plan, edge, places, most_gbps, lanes.get(edge))
        for edge in sorted(plan.edges, key=lambda edge: -edge.flow_gbps)
    ]
    parts += [_region(plan, tag, place) for tag, place in places.items()]
    title = escape(f"{plan.src} to {plan.dst}: {plan.in_words}")
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}"'
        f' height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="sans-serif" font-size="12" text-anchor="middle" style="background:#fff">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def _columns(plan: TransferPlan) -> dict[str, int]:
    """Region tag -> column: its furthest place on a path. The sink has the last one."""
    columns = {plan.src: 0}
    for path in plan.paths:
        for number, tag in enumerate(path.regions):
            columns[tag] = max(columns.get(tag, 0), number)
    for tag in (*plan.instances, *(end for edge in plan.edges for end in (edge.src, edge.dst))):
        columns.setdefault(tag, 1)
    if plan.dst != plan.src:
        columns[plan.dst] = max([1, *(len(path.regions) - 1 for path in plan.paths)])
    return columns


def _places(columns: Mapping[str, int], top: float) -> dict[str, Place]:
    """Region tag -> centre of its circle; each column is in the middle of the height."""
    by_column: dict[int, list[str]] = {}
    for tag in sorted(columns):
        by_column.setdefault(columns[tag], []).append(tag)
    rows = max(map(len, by_column.values()))
    return {
        tag: (_SIDE + _COLUMN * column, top + _ROW * (number + (rows - len(tags)) / 2))
        for column, tags in by_column.items()
        for number, tag in enumerate(tags)
    }


def _region(plan: TransferPlan, tag: str, place: Place) -> str:
    colour = _SOURCE if tag == plan.src else _SINK if tag == plan.dst else _RELAY
    group = plan.instances.get(tag)
    instances = f"{group.count} x {group.type}" if group else ""
    x, y = place
    return (
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{_RADIUS:.0f}" fill="{colour}"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" fill="#fff" font-weight="bold">'
        f"{group.count if group else 0}</text>"
        f'<text x="{x:.0f}" y="{y + _RADIUS + 14:.0f}">{escape(tag)}</text>'
        f'<text x="{x:.0f}" y="{y + _RADIUS + 28:.0f}" fill="#5b6b7b">{escape(instances)}</text>'
    )


def _edge(
    plan: TransferPlan,
    edge: PlanEdge,
    places: Mapping[str, Place],
    most_gbps: float,
    lane: int | None,
) -> str:
    """A line with its rate. With a lane it leads above all regions."""
    (x, y), (u, v) = places[edge.src], places[edge.dst]
    # An edge and its reverse bend to opposite sides.
    side = 1 if (u, v) > (x, y) else -1
    bend = (_BEND * 3 * side, 0.0) if u == x else (0.0, -_BEND * side)
    middle = (x + u) / 2 + bend[0], (y + v) / 2 + bend[1]
    if lane is not None:
        middle = middle[0], _TOP / 2 + _LANE * lane
    control = 2 * middle[0] - (x + u) / 2, 2 * middle[1] - (y + v) / 2
    start, end = _toward((x, y), control), _toward((u, v), control, gap=4.0)
    width = max(_NARROWEST, _WIDEST * edge.flow_gbps / most_gbps)
    is_direct = (edge.src, edge.dst) == (plan.src, plan.dst)
    colour = _DIRECT_EDGE if is_direct else _RELAY_EDGE
    words = (
        f"{edge.src} to {edge.dst}: {rate(edge.flow_gbps)} Gbit/s over"
        f" {counted(edge.connections, 'connection')} for {edge.usd_per_gb:.4f} USD per GB"
    )
    return (
        f"<g><title>{escape(words)}</title>"
        f'<path d="M{_point(start)} Q{_point(control)} {_point(end)}" fill="none"'
        f' stroke="#{colour}" stroke-opacity=".8" stroke-width="{width:.1f}"'
        f' marker-end="url(#head-{colour})"/>'
        f'<text x="{middle[0]:.0f}" y="{middle[1] - width / 2 - 3:.0f}" stroke="#fff"'
        f' stroke-width="3" paint-order="stroke">{rate(edge.flow_gbps)} Gbit/s</text></g>'
    )


def _toward(place: Place, control: Place, gap: float = 0.0) -> Place:
    """The point at a region's circle where a line to `control` begins."""
    across, down = control[0] - place[0], control[1] - place[1]
    share = (_RADIUS + gap) / (math.hypot(across, down) or 1.0)
    return place[0] + across * share, place[1] + down * share


def _point(place: Place) -> str:
    return f"{place[0]:.1f},{place[1]:.1f}"
