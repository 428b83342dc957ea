"""Planned, probed and achieved rates as bars in one SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 760
_LABEL: Final = 300
_TOP: Final = 56
_BAR: Final = 5
_ROW: Final = 30
_COLOURS: Final = {
    "planned": "#5b6b7b",
    "probed": "#c98a4b",
    "steady": "#8fbfae",
    "achieved": "#1b7f5c",
}


@dataclass(frozen=True, slots=True)
class Bars:
    """Rates of one plan or one edge in Gbit/s; None where nothing was measured.

    `achieved` is that of the whole transfer, `steady` without its start and tail.
    """

    label: str
    planned: float
    probed: float | None
    steady: float | None
    achieved: float

    @property
    def rates(self) -> dict[str, float | None]:
        return {
            "planned": self.planned,
            "probed": self.probed,
            "steady": self.steady,
            "achieved": self.achieved,
        }


def svg(title: str, rows: Sequence[Bars]) -> str:
    """One SVG element; the same rows give the same text."""
    most = max(rate or 0.0 for row in rows for rate in row.rates.values())
    height = _TOP + _ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" font-family="DejaVu Sans, sans-serif" font-size="11"'
        f' style="background: #fff"><title>{escape(title)}</title>'
        f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(title)}</text>'
    ]
    for number, (name, colour) in enumerate(_COLOURS.items()):
        x = _LABEL + 100 * number
        parts.append(
            f'<rect x="{x}" y="32" width="14" height="8" fill="{colour}"/>'
            f'<text x="{x + 20}" y="40">{name}</text>'
        )
    for number, row in enumerate(rows):
        parts += _row(row, _TOP + _ROW * number, most)
    return "".join((*parts, "</svg>\n"))


def _row(row: Bars, top: int, most: float) -> list[str]:
    parts = [f'<text x="{_LABEL - 8}" y="{top + 14}" text-anchor="end">{escape(row.label)}</text>']
    room = _WIDTH - _LABEL - 130
    for number, (name, rate) in enumerate(row.rates.items()):
        if rate is not None:
            parts.append(
                f'<rect x="{_LABEL}" y="{top + number * (_BAR + 1)}" height="{_BAR}"'
                f' width="{room * rate / most:.1f}" fill="{_COLOURS[name]}"/>'
            )
    end = _LABEL + room * max(rate or 0.0 for rate in row.rates.values()) / most
    text = f"{1e3 * row.achieved:.0f} of {1e3 * row.planned:.0f} Mbit/s"
    parts.append(f'<text x="{end + 6:.1f}" y="{top + 14}">{text}</text>')
    return parts
