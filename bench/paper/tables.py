"""Markdown tables, and the explanation of each difference from the paper."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

#: Where the plots lie, from the page.
IMAGES = "images/reproduction"
PAGE_WIDTH = 160
#: Stands for a space that no line ends at.
_UNBROKEN = "\0"
UNKNOWN = "the reason is not known."
#: A difference beyond this share is put into words.
WORTH_A_WORD = 0.1


@dataclass(frozen=True, slots=True)
class Compared:
    """One number of ours beside the paper's.

    Attributes:
        reason: why they differ, or that the reason is not known; printed only where they differ by
            more than a tenth.
    """

    name: str
    ours: float
    paper: float
    reason: str
    digits: int = 2

    @property
    def ratio(self) -> float:
        return self.ours / self.paper

    @property
    def differs(self) -> bool:
        return abs(self.ratio - 1.0) > WORTH_A_WORD


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def compared(rows: Sequence[Compared]) -> str:
    """Ours, the paper's, the ratio; then a sentence for every larger difference."""
    body = table(
        ("", "ours", "paper", "ours / paper"),
        [
            (
                row.name,
                f"{row.ours:.{row.digits}f}",
                f"{row.paper:.{row.digits}f}",
                f"{row.ratio:.2f}",
            )
            for row in rows
        ],
    )
    words = [f"- {row.name}: {row.reason}" for row in rows if row.differs]
    if not words:
        return f"{body}\n\nNo number differs by more than {percent(WORTH_A_WORD)}."
    return f"{body}\n\nWhere they differ by more than {percent(WORTH_A_WORD)}:\n\n" + "\n".join(
        words
    )


def refilled(page: str) -> str:
    """The page with every paragraph and list item on lines of one width; the rest as it is."""
    return "\n\n".join(_refilled(block) for block in page.split("\n\n"))


def _refilled(block: str) -> str:
    if block.startswith(("|", "#", "!")):
        return block
    # A code span stays on one line.
    kept = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", _UNBROKEN), block)
    items = re.split(r"\n(?=- )", kept)
    filled = "\n".join(
        textwrap.fill(
            " ".join(item.split()),
            PAGE_WIDTH,
            subsequent_indent="  " if item.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for item in items
    )
    return filled.replace(_UNBROKEN, " ")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
