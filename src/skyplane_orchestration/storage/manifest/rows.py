"""The rows of a manifest as a table of Arrow, and their two files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skyplane_gateway.common.errors import ManifestUnreadable, NotFound, ObjectTooLarge
from skyplane_gateway.common.objects import is_time_pin
from skyplane_gateway.common.source_version import identity_of
from skyplane_gateway.manifest.document import INDEX_SUFFIX, ROWS_SUFFIX, Segment
from skyplane_gateway.manifest.index import Row, encode_index
from skyplane_gateway.stores import ObjectStore, head_all
from skyplane_gateway.stores.base import read_object

#: `state`: `copied` by the run, `verified` to be equal by it, or `deleted`. A copy is of the object
#: `source_store` + `source_key` in its version; `copy` is the version that it has at `key`. Of the
#: rows of one key, that of the highest `commit` counts.
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("copy", pa.string(), nullable=False),
        pa.field("source_store", pa.string(), nullable=False),
        pa.field("source_key", pa.string(), nullable=False),
        pa.field("source_version", pa.string(), nullable=False),
        pa.field("source_time", pa.timestamp("us", "UTC")),
        pa.field("crc32c", pa.uint32()),
        pa.field("commit", pa.int64(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("recorded", pa.timestamp("us", "UTC"), nullable=False),
    ]
)

DELETED: Final = "deleted"

_STATES: Final = {"copied": "copied", "skipped": "verified"}
_BATCH_ROWS: Final = 50_000
#: The years 1 and 9999: a file may have any time, Python's calendar ends there.
_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799
#: Rows that are Python objects at once.
_INDEX_ROWS: Final = 4096


def table_of(rows: Iterator[dict[str, Any]]) -> pa.Table:
    """The rows in the order of their keys."""
    batches = [SCHEMA.empty_table()]
    while batch := list(islice(rows, _BATCH_ROWS)):
        batches.append(pa.Table.from_pylist(batch, schema=SCHEMA))
    return newest(batches)


def copied_rows(
    report: Iterable[Mapping[str, Any]], store: ObjectStore, folder: str, **of_all: Any
) -> Iterator[dict[str, Any]]:
    """The rows of the objects that a run has verified, by its report.

    Args:
        store: of the destination.
        of_all: `source_store`, `run` and `recorded`.
    """
    known = (row for row in report if row["state"] in _STATES and row.get("version"))
    while batch := list(islice(known, _BATCH_ROWS)):
        for row, copy in zip(batch, _copies(batch, store), strict=True):
            if copy:
                yield {
                    "key": row["destination"].removeprefix(folder),
                    "state": _STATES[row["state"]],
                    "bytes": row["bytes"],
                    "copy": copy,
                    "source_key": row["source"],
                    "source_version": row["version"],
                    "source_time": round(min(max(row["source_unix_s"], _FIRST_S), _LAST_S) * 1e6),
                    "crc32c": row.get("crc32c"),
                    "commit": 0,
                    **of_all,
                }


def _copies(rows: Sequence[Mapping[str, Any]], store: ObjectStore) -> Iterator[str]:
    """The identity of each copy; empty where it has none.

    That of a file is only complete once nobody writes it: its writer changes the inode last. What
    an earlier epoch has written may have been edited since, so the next sync reads it.
    """
    etags = [row.get("copy") or row.get("destination_etag", "") for row in rows]
    if store.spec.kind != "file":
        yield from ("" if is_time_pin(etag) else etag for etag in etags)
        return
    found = head_all(store, [row["destination"] for row in rows])
    for row, etag, info in zip(rows, etags, found, strict=True):
        copy = identity_of("file", info) if info is not None else ""
        if info is None or etag not in (info.etag, copy):
            yield ""
        else:
            yield copy if row["attempts"] or etag == copy else info.etag


def deleted_rows(keys: Iterable[str], folder: str, **of_all: Any) -> Iterator[dict[str, Any]]:
    """The rows of objects that a run deletes."""
    texts = dict.fromkeys(("copy", "source_key", "source_version"), "")
    for key in keys:
        row = {"key": key.removeprefix(folder), "state": DELETED, "bytes": 0, "commit": 0}
        yield {**row, **texts, **of_all}


def numbered(table: pa.Table, commit: int) -> pa.Table:
    """The rows with the number of their commit."""
    at = SCHEMA.get_field_index("commit")
    numbers = pa.array([commit] * table.num_rows, pa.int64())
    return table.set_column(at, SCHEMA.field(at), numbers)


def newest(tables: Sequence[pa.Table]) -> pa.Table:
    """The last row of each key, ascending by key; the oldest table comes first."""
    whole = pa.concat_tables(tables)
    ordered = whole.take(pc.sort_indices(whole, sort_keys=[("key", "ascending")]))  # It is stable.
    keys = ordered["key"].combine_chunks()
    if len(keys) < 2:
        return ordered
    is_last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    is_last = is_last.combine_chunks() if isinstance(is_last, pa.ChunkedArray) else is_last
    return ordered.filter(pa.concat_arrays([is_last, pa.array([True])]))


def without_deleted(table: pa.Table) -> pa.Table:
    return table.filter(pc.not_equal(table["state"], DELETED))


def dicts_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table, a batch in memory at a time."""
    for batch in table.to_batches(_BATCH_ROWS):
        yield from batch.to_pylist()


def files_of(table: pa.Table, name: str) -> tuple[Segment, dict[str, bytes]]:
    """A segment with these rows, and its files by their suffixes."""
    body = io.BytesIO()
    pq.write_table(table, body, compression="zstd")
    index, stores, blocks = encode_index(_index_rows(table), table.num_rows)
    parquet = body.getvalue()
    segment = Segment(
        name,
        table.num_rows,
        len(parquet),
        len(index),
        hashlib.sha256(parquet).hexdigest(),
        hashlib.sha256(index).hexdigest(),
        stores,
        tuple(blocks),
    )
    return segment, {ROWS_SUFFIX: parquet, INDEX_SUFFIX: index}


def _index_rows(table: pa.Table) -> Iterator[Row]:
    names = ("key", "copy", "source_store", "source_key", "source_version", "crc32c", "bytes")
    for batch in table.select(names).to_batches(_INDEX_ROWS):
        yield from map(Row, *(column.to_pylist() for column in batch.columns))


def read_segment(store: ObjectStore, prefix: str, segment: Segment) -> pa.Table:
    """The rows of a segment. Raises ManifestUnreadable for one that is gone or damaged."""
    key = f"{prefix}{segment.name}{ROWS_SUFFIX}"
    body = read_file(store, key, segment.parquet_bytes, segment.parquet_sha256)
    return pq.read_table(io.BytesIO(body)).cast(SCHEMA)


def read_file(store: ObjectStore, key: str, size_bytes: int, sha256: str) -> bytes:
    """A file of a segment, as the pointer knows it; pyarrow may read a damaged one as other rows.

    Raises ManifestUnreadable.
    """
    try:
        _, body = read_object(store, key, max_bytes=size_bytes)
    except NotFound as error:
        raise ManifestUnreadable(f"a segment of the manifest is gone: {key}") from error
    except ObjectTooLarge:
        body = b""
    if hashlib.sha256(body).hexdigest() != sha256:
        raise ManifestUnreadable(f"a segment of the manifest is damaged: {key}")
    return body
