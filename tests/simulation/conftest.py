"""What the tests of this folder have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

#: The coroutines and generators of a killed process never end, and Python warns when it collects
#: them.
_OF_KILLED: Final = (
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for told in _OF_KILLED:
                item.add_marker(pytest.mark.filterwarnings(told))
