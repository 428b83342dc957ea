"""A frontier as a chart: price over throughput, as plain SVG text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from skyplane_orchestration.plan import TransferPlan
from skyplane_orchestration.planner.picture import (
    HEADER,
    HEIGHT,
    INK,
    PAPER,
    RELAY,
    SINK,
    SOURCE,
    WIDTH,
)

LEFT, RIGHT, TOP, BOTTOM = 90.0, 40.0, HEADER + 24.0, 60.0
GRID_LINE = "#dde2e8"
#: About as many lines across a chart as a reader can follow.
_LINES = 6
#: Colours of the plans beside the frontier, in their order.
_MARKS = (SOURCE, RELAY)


def frontier_svg(plans: Sequence[TransferPlan], marks: Mapping[str, TransferPlan]) -> str:
    """One SVG document: the plans joined in their order, each mark a point with its name.

    Both axes begin at zero, so that a distance on paper is a distance in price or rate.

    Args:
        plans: at least one, in order of their rates, as `frontier` returns them.
        marks: name -> a plan to compare with.
    """
    everything = [*plans, *marks.values()]
    across = _ticks(max(plan.throughput_gbps for plan in everything))
    upward = _ticks(max(plan.cost.usd_per_gb for plan in everything))
    scale = _Scale(across[-1], upward[-1])
    title = f"{plans[0].src} to {plans[0].dst}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}"'
            f' width="{WIDTH:g}" height="{HEIGHT:g}" font-family="sans-serif" font-size="12"'
            f' fill="{INK}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH:g}" height="{HEIGHT:g}" fill="{PAPER}"/>',
            f'<text x="20" y="26" font-size="17" font-weight="bold">{escape(title)}</text>',
            f'<text x="20" y="46">price over throughput  ·  grid {escape(plans[0].grid.name)}'
            f" of {escape(plans[0].grid.as_of)}</text>",
            *_axes(scale, across, upward),
            *_curve(scale, plans),
            *(
                part
                for number, (name, plan) in enumerate(marks.items())
                for part in _mark(scale, name, plan, number)
            ),
            "</svg>",
            "",
        ]
    )


class _Scale:
    """From Gbit/s and USD per GB to places on the sheet.

    Args:
        most_gbps, most_usd_per_gb: what lies at the far ends of the axes; above zero.
    """

    def __init__(self, most_gbps: float, most_usd_per_gb: float) -> None:
        self._most_gbps = most_gbps
        self._most_usd_per_gb = most_usd_per_gb

    def x(self, gbps: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * gbps / self._most_gbps

    def y(self, usd_per_gb: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * usd_per_gb / self._most_usd_per_gb

    def place(self, plan: TransferPlan) -> tuple[float, float]:
        return self.x(plan.throughput_gbps), self.y(plan.cost.usd_per_gb)


def _ticks(most: float) -> list[float]:
    """Round numbers from zero to the first that is not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / _LINES
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(most / step) + 1)]


def _axes(scale: _Scale, across: Sequence[float], upward: Sequence[float]) -> Iterator[str]:
    for gbps in across:
        x = scale.x(gbps)
        yield _line(x, TOP, x, HEIGHT - BOTTOM)
        below = HEIGHT - BOTTOM + 18
        yield f'<text x="{x:.1f}" y="{below:.1f}" text-anchor="middle">{gbps:g}</text>'
    for usd_per_gb in upward:
        y = scale.y(usd_per_gb)
        yield _line(LEFT, y, WIDTH - RIGHT, y)
        yield f'<text x="{LEFT - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{usd_per_gb:g}</text>'
    yield f'<text x="{WIDTH / 2:.1f}" y="{HEIGHT - 14:.1f}" text-anchor="middle">Gbit/s</text>'
    yield f'<text x="20" y="{TOP - 8:.1f}">USD per GB</text>'


def _line(x: float, y: float, u: float, v: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" stroke="{GRID_LINE}"/>'


def _curve(scale: _Scale, plans: Sequence[TransferPlan]) -> Iterator[str]:
    places = [scale.place(plan) for plan in plans]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{points}" fill="none" stroke="{SINK}" stroke-width="2"/>'
    for plan, (x, y) in zip(plans, places, strict=True):
        facts = (
            f"{plan.throughput_gbps:.2f} Gbit/s, {plan.cost.usd_per_gb:.4f} USD per GB,"
            f" {plan.instance_count} instances, relays: {', '.join(plan.relays) or 'none'}"
        )
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{SINK}">'
            f"<title>{escape(facts)}</title></circle>"
        )


def _mark(scale: _Scale, name: str, plan: TransferPlan, number: int) -> Iterator[str]:
    """A square with its name: names alternate above and below, since marks may coincide."""
    x, y = scale.place(plan)
    colour = _MARKS[number % len(_MARKS)]
    label_y = y - 12 if number % 2 == 0 else y + 22
    yield f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>'
    yield (
        f'<text x="{x + 8:.1f}" y="{label_y:.1f}" fill="{colour}" stroke="{PAPER}"'
        f' stroke-width="3.5" paint-order="stroke">{escape(name)}:'
        f" {plan.throughput_gbps:.2f} Gbit/s, {plan.cost.usd_per_gb:.4f} USD per GB</text>"
    )
