"""One level of a prefix is listed without all keys below it."""

from __future__ import annotations

import pytest
from tests.counting_store import CountingStore

from skyplane_orchestration.storage import folder_listing
from skyplane_orchestration.storage.folder_listing import one_level


def names(store: CountingStore, prefix: str = "") -> list[str]:
    return [row if isinstance(row, str) else row.key for row in one_level(store, prefix)]


def test_a_large_folder_is_skipped_after_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_listing, "_PAGE", 10)
    keys = [f"big/{number:03}" for number in range(200)]
    store = CountingStore("levels", [*keys, "big/\U0010ffff/x", "big", "big-a", "big0", "small/x"])
    assert names(store) == ["big", "big-a", "big/", "big0", "small/"]
    assert store.starts == [None, "big/\U0010ffff"]
    assert names(store, "big/")[:3] == keys[:3]


def test_a_marker_of_the_folder_itself_is_an_object() -> None:
    store = CountingStore("markers", ["a/", "a/b/", "a/b/c", "a/d"])
    assert names(store) == ["a/"]
    assert names(store, "a/") == ["a/", "a/b/", "a/d"]
