"""docs/explanation/orchestrators.md: the tests that it names exist, and each row has a reason."""

from __future__ import annotations

import re
from typing import Final

import pytest
from tests.docs.pages import Page
from tests.docs.test_failure_modes import names_in

PAGE: Final = Page("docs/explanation/orchestrators.md")
ROWS: Final = re.findall(r"^\| ([^|]+) \| (yes|no) \| ([^|]+) \|$", PAGE.text, re.MULTILINE)


def test_both_tables_are_found() -> None:
    assert len(ROWS) >= 30


@pytest.mark.parametrize(("feature", "is_there", "why"), ROWS)
def test_a_row_names_tests_or_a_reason(feature: str, is_there: str, why: str) -> None:
    for path, name in re.findall(r"`(tests/[\w/.]+\.py)::(\w+)`", why):
        assert name in names_in(path), feature
    assert why.strip()
