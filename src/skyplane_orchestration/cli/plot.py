"""A plan drawn on a map, as SVG: what runs where, and how much of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.plan import TransferPlan

_WIDTH: Final = 1200
_MAP_HEIGHT: Final = 560
_TOP: Final = 50
#: Latitudes beyond these hold no region; leaving them out makes the rest larger.
_NORTH: Final = 72.0
_SOUTH: Final = -50.0
_MERIDIANS: Final = 360.0
_GRATICULE_STEP: Final = 30
_WIDEST: Final = 7.0

_COLOURS: Final = {"aws": "#d9730d", "gcp": "#2e6fd0", "azure": "#0e8a87", "local": "#555555"}


def draw(plan: TransferPlan, grid: Grid) -> str:
    """The plan as one SVG document. Regions whose place is not known stand at the left edge."""
    body = [
        *_graticule(),
        *_other_regions(plan, grid),
        *_edges(plan, grid),
        *_regions(plan, grid),
        *_caption(plan),
    ]
    height = _MAP_HEIGHT + _TOP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
            f' width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{height}" fill="#fbfbf9"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _at(grid: Grid, tag: str) -> tuple[float, float]:
    """Equirectangular: degrees become pixels without a formula."""
    number = grid.index.get(tag)
    region = None if number is None else grid.regions[number]
    if region is None or not math.isfinite(region.longitude + region.latitude):
        return 20.0, _TOP + _MAP_HEIGHT / 2
    x = (region.longitude + _MERIDIANS / 2) / _MERIDIANS * _WIDTH
    y = _TOP + (_NORTH - region.latitude) / (_NORTH - _SOUTH) * _MAP_HEIGHT
    return x, y


def _graticule() -> Iterator[str]:
    for longitude in range(-180, 181, _GRATICULE_STEP):
        x = (longitude + _MERIDIANS / 2) / _MERIDIANS * _WIDTH
        yield (
            f'<line x1="{x:.0f}" y1="{_TOP}" x2="{x:.0f}" y2="{_TOP + _MAP_HEIGHT}"'
            ' stroke="#e8e8e2"/>'
        )
    for latitude in range(-30, 61, _GRATICULE_STEP):
        y = _TOP + (_NORTH - latitude) / (_NORTH - _SOUTH) * _MAP_HEIGHT
        yield f'<line x1="0" y1="{y:.0f}" x2="{_WIDTH}" y2="{y:.0f}" stroke="#e8e8e2"/>'


def _other_regions(plan: TransferPlan, grid: Grid) -> Iterator[str]:
    for tag in grid.tags:
        if tag not in plan.instances:
            x, y = _at(grid, tag)
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="#c9c9c2">'
                f"<title>{escape(tag)}</title></circle>"
            )


def _edges(plan: TransferPlan, grid: Grid) -> Iterator[str]:
    """Curves to the right of their direction, so that both ways between two regions show."""
    for edge in plan.edges:
        (x1, y1), (x2, y2) = _at(grid, edge.src), _at(grid, edge.dst)
        bend_x, bend_y = (x1 + x2) / 2 + (y2 - y1) / 6, (y1 + y2) / 2 - (x2 - x1) / 6
        width = max(1.0, _WIDEST * edge.flow_gbps / plan.throughput_gbps)
        label = f"{edge.src} -> {edge.dst}: {edge.flow_gbps:.2f} Gbit/s"
        yield (
            f'<path d="M{x1:.1f} {y1:.1f} Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"'
            f' fill="none" stroke="#7a1f5c" stroke-opacity="0.6" stroke-width="{width:.1f}">'
            f"<title>{escape(label)}</title></path>"
        )
        text_x, text_y = (x1 + 2 * bend_x + x2) / 4, (y1 + 2 * bend_y + y2) / 4
        yield (
            f'<text x="{text_x:.1f}" y="{text_y - 4:.1f}" text-anchor="middle" fill="#5d1746">'
            f"{edge.flow_gbps:.1f}</text>"
        )


def _regions(plan: TransferPlan, grid: Grid) -> Iterator[str]:
    for tag, group in plan.instances.items():
        x, y = _at(grid, tag)
        colour = _COLOURS.get(tag.partition(":")[0], "#555555")
        is_end = tag in (plan.src, plan.dst)
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if is_end else 5}" fill="{colour}"'
            f' stroke="#222222" stroke-width="{2 if is_end else 0.5}"/>'
        )
        yield (
            f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="#222222">'
            f"{escape(tag)} x{group.count}</text>"
        )


def _caption(plan: TransferPlan) -> Iterator[str]:
    yield (
        f'<text x="20" y="30" font-size="18" fill="#222222">{escape(plan.src)} to'
        f" {escape(plan.dst)}: {plan.throughput_gbps:.2f} Gbit/s at"
        f" ${plan.cost.usd_per_gb:.4f} per GB</text>"
    )
