"""The rows of a run, by the report of its lead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.storage.manifest.lab import FOLDER, empty_store

from skyplane_gateway.common.objects import StoreSpec, time_pin
from skyplane_gateway.common.source_version import identity_of
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.storage.manifest.rows import copied_rows, files_of, table_of

OF_ALL = {"source_store": "s3://a/", "run": "run", "recorded": 0}


def reported(key: str, etag: str, **more: Any) -> dict[str, Any]:
    return {
        "state": "copied",
        "source": f"p/{key}",
        "destination": key,
        "bytes": 1,
        "version": '"v"',
        "source_unix_s": 1.7e9,
        "destination_etag": etag,
        "crc32c": 7,
        "attempts": 1,
        **more,
    }


def copies(store: ObjectStore, folder: str, *report: dict[str, Any]) -> dict[str, str]:
    rows = copied_rows(report, store, folder, **OF_ALL)
    return {row["key"]: row["copy"] for row in rows}


@pytest.mark.parametrize("time_s", [-9.2e18, -1.0, 0.0, 4e9, 9.2e12, 9.2e18])
def test_a_source_may_have_any_time(time_s: float) -> None:
    report = [reported("f/a", '"1"', source_unix_s=time_s)]
    table = table_of(copied_rows(report, empty_store(), FOLDER, **OF_ALL))
    assert files_of(table, "name")[0].rows == 1
    found = table["source_time"].to_pylist()[0]
    assert found.timestamp() == pytest.approx(min(max(time_s, -62_135_596_800), 253_402_300_799))


def test_only_what_was_verified_and_has_versions_gets_a_row() -> None:
    report = [
        reported("f/copied", '"1"'),
        reported("f/proved", "", state="skipped", attempts=0, copy='"2"'),
        reported("f/kept", "", state="skipped", version=""),
        reported("f/failed", '"3"', state="failed"),
        reported("f/deleted", '"4"', state="deleted"),
        reported("f/by-time", time_pin(1.0, 1)),
        reported("f/earlier", '"5"', version=""),
    ]
    assert copies(empty_store(), FOLDER, *report) == {"copied": '"1"', "proved": '"2"'}


def test_a_file_that_is_another_one_by_now_gets_no_row(tmp_path: Path) -> None:
    store, folder = LocalStore(StoreSpec("file", "/")), f"{tmp_path}/".lstrip("/")
    etags = {key: store.put(folder + key, b"1").etag for key in ("same", "edited", "gone", "new")}
    rows = {info.key: identity_of("file", info) for info in store.list(folder)}
    (tmp_path / "edited").write_bytes(b"22")
    store.delete(folder + "gone")
    (tmp_path / "other").write_bytes(b"1")
    os.replace(tmp_path / "other", tmp_path / "new")
    report = [reported(folder + key, etag) for key, etag in etags.items()]
    assert copies(store, folder, *report) == {"same": rows[f"{folder}same"]}


def test_a_proved_file_whose_inode_was_changed_gets_no_row(tmp_path: Path) -> None:
    """It may have been written in place after it was compared, and got its time back."""
    store, folder = LocalStore(StoreSpec("file", "/")), f"{tmp_path}/".lstrip("/")
    info = store.put(f"{folder}a", b"1")
    proved = reported(info.key, "", state="skipped", attempts=0, copy=identity_of("file", info))
    assert set(copies(store, folder, proved)) == {"a"}
    (tmp_path / "a").write_bytes(b"2")
    os.utime(tmp_path / "a", (0, info.last_modified))
    assert copies(store, folder, proved) == {}


def test_a_file_that_an_earlier_epoch_wrote_is_read_by_the_next_sync(tmp_path: Path) -> None:
    store, folder = LocalStore(StoreSpec("file", "/")), f"{tmp_path}/".lstrip("/")
    info = store.put(f"{folder}a", b"1")
    assert copies(store, folder, reported(info.key, info.etag, attempts=0)) == {"a": info.etag}
