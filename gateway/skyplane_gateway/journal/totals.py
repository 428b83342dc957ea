"""Totals of a transfer over its epochs; each journal holds those of the epochs before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from skyplane_gateway.common.schema import Document
from skyplane_gateway.config import Route

#: Most hops in the totals, more than any plan has; hops with few bytes are dropped first.
MAX_HOPS: Final = 256

#: Fields of `Totals` that sum the counters with the same names.
COUNTS: Final = ("not_carried", "server_side", "server_side_bytes", "unchecked")


@dataclass(frozen=True, slots=True)
class SentRow:
    """Payload that arrived over one hop between two regions."""

    src: str
    dst: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Totals(Document, what="the totals of a transfer"):
    """Sums over epochs.

    Attributes:
        seconds: time in which a lead ran: from submit to its end, or to its last journal where
            the lead was lost.
        sent: payload by hop.
        not_carried, not_carried_by_name: see `lead.object_report.Counters`.
        server_side, server_side_bytes, unchecked: see the same.
    """

    seconds: float = 0.0
    sent: tuple[SentRow, ...] = ()
    not_carried: int = 0
    not_carried_by_name: Mapping[str, int] = field(default_factory=dict)
    server_side: int = 0
    server_side_bytes: int = 0
    unchecked: int = 0

    def plus(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            seconds=self.seconds + other.seconds,
            sent=_joined((*self.sent, *other.sent)),
            **{name: getattr(self, name) + getattr(other, name) for name in COUNTS},
            not_carried_by_name={
                name: self.not_carried_by_name.get(name, 0) + other.not_carried_by_name.get(name, 0)
                for name in sorted({*self.not_carried_by_name, *other.not_carried_by_name})
            },
        )


def sent_over(routes: Iterable[Route], delivered_bytes: Mapping[int, int]) -> tuple[SentRow, ...]:
    """Payload by hop, from the payload with a receipt by route number."""
    return _joined(
        SentRow(_region_of(src), _region_of(dst), delivered_bytes.get(route.number, 0))
        for route in routes
        for src, dst in pairwise(route.nodes)
    )


def _region_of(node: str) -> str:
    """Names of gateways begin with `region tag/`."""
    return node.rpartition("/")[0] or node


def _joined(rows: Iterable[SentRow]) -> tuple[SentRow, ...]:
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        sums[row.src, row.dst] = sums.get((row.src, row.dst), 0) + row.size_bytes
    found = [SentRow(src, dst, size) for (src, dst), size in sums.items() if size]
    found.sort(key=lambda row: (-row.size_bytes, row.src, row.dst))
    return tuple(found[:MAX_HOPS])
