from __future__ import annotations

import pytest
from tests.counting_store import CountingStore

from skyplane_gateway.stores import ListedRows, list_from


@pytest.fixture
def store() -> CountingStore:
    return CountingStore("listed-rows", ["p/a", "p/b", "p/c", "p/d"])


@pytest.mark.parametrize(
    ("count", "is_complete", "starts"),
    [(0, False, [None]), (0, True, []), (1, False, ["p/a"]), (4, False, ["p/d"]), (4, True, [])],
)
def test_the_store_lists_only_what_is_missing(
    store: CountingStore, count: int, is_complete: bool, starts: list[str | None]
) -> None:
    rows = tuple(store.list("p/"))
    store.starts.clear()
    found = tuple(list_from(store, "p/", ListedRows("p/", rows[:count], is_complete), None))
    assert found == (rows if count or not is_complete else ())
    assert store.starts == starts


def test_rows_of_another_prefix_do_not_count(store: CountingStore) -> None:
    rows = tuple(store.list("p/"))
    store.starts.clear()
    assert tuple(list_from(store, "p", ListedRows("p/", rows, is_complete=True), None)) == rows
    assert tuple(list_from(store, "p/", None, None)) == rows
    assert store.starts == [None, None]
