"""The blocks of a page that a test runs.

A block counts when a comment directly before it says so, such as `<!-- test: dag -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(
    r"<!-- test: (?P<name>\w+) -->\s*```\w+\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
REPOSITORY: Final = Path(__file__).resolve().parents[2]


def blocks_of(text: str) -> dict[str, list[str]]:
    """Tested blocks by name, in their order."""
    found: dict[str, list[str]] = {}
    for match in _BLOCK.finditer(text):
        found.setdefault(match["name"], []).append(match["text"])
    return found


def blocks_of_page(page: str) -> dict[str, list[str]]:
    """The same of a page, named by its path in the repository."""
    return blocks_of((REPOSITORY / page).read_text(encoding="utf-8"))
