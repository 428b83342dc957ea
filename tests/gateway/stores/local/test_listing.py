"""What a listing of files costs: directories read, files looked at."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.stores import ObjectStore, StoreSpec
from skyplane_gateway.stores.local import listing
from skyplane_gateway.stores.local.paths import info_of
from skyplane_gateway.stores.registry import open_without_retries

FOLDERS, FILES = 20, 25


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """`00/00` to `19/24`, and a file after them all."""
    for folder in range(FOLDERS):
        (tmp_path / f"{folder:02d}").mkdir()
        for number in range(FILES):
            (tmp_path / f"{folder:02d}" / f"{number:02d}").write_bytes(b"")
    (tmp_path / "last").write_bytes(b"")
    return open_without_retries(StoreSpec("file", str(tmp_path)))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the directories that were read, in order."""
    names: list[str] = []
    scandir = os.scandir

    def counting(path: Any) -> Any:
        names.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    return names


def page(store: ObjectStore, start_after: str | None, limit: int) -> list[str]:
    rows = store.list("", start_after=start_after)
    return [info.key for info in islice(rows, limit)]


def test_a_page_reads_no_directory_before_its_start(store: ObjectStore, reads: list[str]) -> None:
    assert page(store, "10/24", 1) == ["11/00"]
    # The root, the folder of the last key, and the next one.
    assert reads[1:] == ["10", "11"]
    reads.clear()
    assert page(store, "19/24", 5) == ["last"]
    assert reads[1:] == ["19"]
    reads.clear()
    assert page(store, "10", 1) == ["10/00"]
    assert reads[1:] == ["10"]
    reads.clear()
    assert page(store, "100", 1) == ["11/00"]
    assert reads[1:] == ["11"]


def test_all_pages_together_read_each_directory_about_once(
    store: ObjectStore, reads: list[str]
) -> None:
    found: list[str] = []
    while rows := page(store, found[-1] if found else None, 10):
        found += rows
    assert len(found) == FOLDERS * FILES + 1
    assert found == sorted(found)
    pages = len(found) // 10 + 2
    # Each page reads the root, the folder it begins in and at most two more.
    assert len(reads) <= pages * 2 + FOLDERS + 2


def test_a_page_looks_at_no_file_before_its_start(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def counting(key: str, status: os.stat_result) -> Any:
        looked.append(key)
        return info_of(key, status)

    monkeypatch.setattr(listing, "info_of", counting)
    assert page(store, "07/20", 3) == ["07/21", "07/22", "07/23"]
    assert looked == ["07/21", "07/22", "07/23"]
