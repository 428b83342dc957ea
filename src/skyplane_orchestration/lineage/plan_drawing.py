"""A plan as Markdown and as a small SVG picture, without a plotting library.

`planner.plots` draws a map with matplotlib. This picture needs no grid, and has a few kilobytes.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final
from xml.sax.saxutils import escape

from skyplane_orchestration.model.plan import PlanPath, TransferPlan

#: Characters of the bar of the widest path.
_BAR: Final = 16

# Lengths of the picture in pixels.
_WIDTH: Final = 760
_SIDE: Final = 95
_ROW: Final = 90
#: Distance of the first path from the top.
_TOP: Final = 45
_RADIUS: Final = 13
_NARROWEST, _WIDEST = 1.5, 8.0
_SOURCE, _SINK, _RELAY, _LINE = "#1b7f5c", "#2f5fb3", "#b3662f", "#aab4be"
#: Text stays legible on top of a line.
_HALO: Final = 'stroke="white" stroke-width="4" paint-order="stroke"'


def plan_markdown(plan: TransferPlan) -> str:
    """Rate, price and instances, then the paths with bars for their rates."""
    most = max(path.flow_gbps for path in plan.paths)
    paths = [
        f"{path.flow_gbps:6.2f} Gbit/s {_bar(path.flow_gbps / most)} {' → '.join(path.regions)}"
        for path in plan.paths
    ]
    return "\n".join([f"**{plan.in_words}**", "", "```text", *paths, "```"])


def _bar(share: float) -> str:
    return f"{'█' * max(1, round(_BAR * share)):<{_BAR}}"


def plan_image_markdown(plan: TransferPlan) -> str:
    """`plan_svg` as an image in Markdown."""
    data = b64encode(plan_svg(plan).encode()).decode()
    return f"![plan from {plan.src} to {plan.dst}](data:image/svg+xml;base64,{data})"


def plan_svg(plan: TransferPlan) -> str:
    """One SVG document: each path in a row of its own, and as wide as its flow."""
    rows = len(plan.paths)
    height = _ROW * rows + _TOP
    middle = _TOP + _ROW * (rows - 1) / 2
    most = max(path.flow_gbps for path in plan.paths)
    paths = [
        _path(plan, path, _TOP + _ROW * row, middle, _WIDEST * path.flow_gbps / most)
        for row, path in enumerate(plan.paths)
        if plan.dst != plan.src
    ]
    ends = [_region(plan, plan.src, _SIDE, middle, _SOURCE)]
    if plan.dst != plan.src:
        ends.append(_region(plan, plan.dst, _WIDTH - _SIDE, middle, _SINK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12" text-anchor="middle">'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join((*paths, *ends))}</svg>'
    )


def _path(plan: TransferPlan, path: PlanPath, y: float, middle: float, width: float) -> str:
    """The line of a path from source to sink, its relays, and its rate above."""
    relays = path.regions[1:-1]
    step = (_WIDTH - 2 * _SIDE) / (len(relays) + 1)
    # Without a relay the line has a corner as well, so that it keeps to its row.
    corners = [_SIDE + step * place for place in range(1, len(relays) + 1)] or [_WIDTH / 2]
    points = [(_SIDE, middle), *((x, y) for x in corners), (_WIDTH - _SIDE, middle)]
    line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    return (
        f'<polyline points="{line}" fill="none" stroke="{_LINE}"'
        f' stroke-width="{max(_NARROWEST, width):.1f}"/>'
        + "".join(_region(plan, tag, x, y, _RELAY) for tag, x in zip(relays, corners, strict=False))
        + _text(f"{path.flow_gbps:.2f} Gbit/s", _WIDTH / 2, y - _RADIUS - 7)
    )


def _region(plan: TransferPlan, tag: str, x: float, y: float, colour: str) -> str:
    group = plan.instances.get(tag)
    lines = [tag, f"{group.count} x {group.type}"] if group else [tag]
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{_RADIUS}" fill="{colour}"/>' + "".join(
        _text(line, x, y + _RADIUS + 14 * row) for row, line in enumerate(lines, 1)
    )


def _text(text: str, x: float, y: float) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {_HALO}>{escape(text)}</text>'
