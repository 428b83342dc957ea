"""A share of the random schedules; every file is one, so that they can run side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.seeds import blocks, ensure_block

# The coroutines of a process that was killed never end, and so leave some unawaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.parametrize("first", blocks(4))
def test_random_schedules_end_equal_or_reported(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    ensure_block(first, record_property)
