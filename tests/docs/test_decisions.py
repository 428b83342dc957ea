"""Every decision has a number of its own, a date, a status and what else was possible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

PAGES: Final = sorted(
    path
    for path in (Path(__file__).resolve().parents[2] / "docs/explanation/decisions").glob("*.md")
    if path.stem != "index"
)
_RECORD: Final = re.compile(
    r"(\d+)\. .+\n\n20\d\d-\d\d-\d\d · (in force|replaced by \d+)\n\n(?s:.+?)\n\nAlternatives: "
)


def records(page: Path) -> list[str]:
    return page.read_text().split("\n## ")[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_record_says_when_why_and_what_else(page: Path) -> None:
    assert [text.split("\n")[0] for text in records(page) if not _RECORD.match(text)] == []


def test_numbers_are_not_used_twice() -> None:
    numbers = [text.split(".")[0] for page in PAGES for text in records(page)]
    assert len(numbers) == len(set(numbers))
