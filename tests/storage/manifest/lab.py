"""A place in memory, and what its manifest says by each of the two files of a segment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    ROWS_SUFFIX,
    Pointer,
    Snapshot,
    read_pointer,
)
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.storage.manifest.commit import ManifestCommit
from skyplane_orchestration.storage.manifest.rows import DELETED, read_segment, table_of

FOLDER = "f/"
PREFIX = "f/.skyplane/manifest/"

#: Key -> what its copy was made of; None for a key that the run deletes.
Changes = Mapping[str, str | None]


def empty_store(bucket: str = "commits") -> MemoryStore:
    create_bucket(bucket)
    return MemoryStore(StoreSpec("memory", bucket))


def table(changes: Changes) -> pa.Table:
    return table_of(
        {
            "key": key,
            "state": DELETED if copy is None else "copied",
            "bytes": 0 if copy is None else len(copy),
            "copy": copy or "",
            "source_store": "s3://a/",
            "source_key": "" if copy is None else f"p/{key}",
            "source_version": "" if copy is None else f"v-{copy}",
            "commit": 0,
            "run": "run",
            "recorded": 0,
        }
        for key, copy in changes.items()
    )


def snapshot(name: str) -> Snapshot:
    return Snapshot(name, 0, "run", "s3://a/", "memory://commits/f/", 1.7e9, 0, 0, ())


def commit(store: ObjectStore, name: str, changes: Changes) -> Pointer:
    return ManifestCommit(store, FOLDER, snapshot(name)).run(table(changes))


def by_index(store: ObjectStore) -> dict[str, str]:
    """Key -> copy, as gateways read it; without deleted keys."""
    return {row.key: row.copy for row in ManifestReader(store, FOLDER).rows() if row.copy}


def by_parquet(store: ObjectStore) -> dict[str, str]:
    """Key -> copy, as people read it; without deleted keys."""
    found = read_pointer(store, FOLDER)
    rows: dict[str, dict[str, Any]] = {}
    for segment in found[0].newest if found else ():
        for row in read_segment(store, PREFIX, segment).to_pylist():
            known = rows.get(row["key"])
            assert known is None or known["commit"] < row["commit"]
            rows[row["key"]] = row
    return {key: row["copy"] for key, row in sorted(rows.items()) if row["state"] != DELETED}


def contents(store: ObjectStore) -> dict[str, str]:
    """By both files, which say the same; each file that the pointer names is there."""
    found = read_pointer(store, FOLDER)
    names = {info.key.removeprefix(PREFIX) for info in store.list(PREFIX)}
    for segment in found[0].segments if found else ():
        assert {segment.name + INDEX_SUFFIX, segment.name + ROWS_SUFFIX} <= names
    rows = by_index(store)
    assert rows == by_parquet(store)
    return rows
