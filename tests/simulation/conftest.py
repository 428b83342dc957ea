"""What the tests of this folder have in common."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from skyplane_gateway.source.chunk_orders import ChunkOrder
from skyplane_gateway.source.transfer import SourceTransfer

#: The coroutines and generators of a killed process never end, and Python warns when it collects
#: them.
_OF_KILLED: Final = (
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            for told in _OF_KILLED:
                item.add_marker(pytest.mark.filterwarnings(told))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """(epoch, chunk) -> how often a source was asked to send it."""
    seen: Counter[tuple[int, int]] = Counter()
    take = SourceTransfer.take

    def counted(source: SourceTransfer, order: ChunkOrder) -> None:
        seen[source.epoch, order.chunk] += 1
        take(source, order)

    monkeypatch.setattr(SourceTransfer, "take", counted)
    return seen
