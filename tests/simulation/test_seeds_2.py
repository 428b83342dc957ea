"""A share of the random schedules; every file is one, so that they can run side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.seeds import blocks, ensure_block


@pytest.mark.parametrize("first", blocks(2))
def test_random_schedules_end_equal_or_reported(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    ensure_block(first, record_property)
