"""A listing that is read ahead has the same rows, and stops soon after its caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from skyplane_orchestration.transfer.nothing_to_do import PAGE_ROWS, read_ahead


@pytest.mark.parametrize(
    "count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, 2 * PAGE_ROWS, 7 * PAGE_ROWS + 1]
)
def test_the_rows_are_the_same(count: int) -> None:
    assert list(read_ahead(iter(range(count)))) == list(range(count))


@pytest.mark.parametrize("count", [5, 3 * PAGE_ROWS])
def test_an_error_comes_after_the_rows_of_the_pages_before(count: int) -> None:
    def rows() -> Iterator[int]:
        yield from range(count)
        raise ConnectionError("gone")

    seen: list[int] = []
    with pytest.raises(ConnectionError, match="gone"):
        seen.extend(read_ahead(rows()))
    assert seen == list(range(count))


def test_nothing_is_read_ahead_of_the_first_page() -> None:
    read: list[int] = []
    rows = read_ahead(read.append(n) or n for n in range(10))  # type: ignore[func-returns-value]
    assert next(rows) == 0
    assert read == [0]


def test_the_thread_ends_when_the_caller_stops() -> None:
    rows = read_ahead(iter(range(100 * PAGE_ROWS)))
    for _ in range(PAGE_ROWS + 1):
        next(rows)
    [thread] = [one for one in threading.enumerate() if one.name == "listing"]
    rows.close()  # type: ignore[attr-defined]
    thread.join(10)
    assert not thread.is_alive()
