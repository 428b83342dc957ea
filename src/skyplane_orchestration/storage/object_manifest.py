"""Writes lists of objects to a file; the manifest of a transfer has a row for each object."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.output_format import MANIFESTS, suffix_of
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import beside_location, open_location

SCHEMA: Final = pa.schema(
    [
        pa.field("state", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("destination", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("crc32c", pa.uint32()),
        pa.field("code", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("not_carried", pa.list_(pa.string())),
    ]
)

_ROW_GROUP: Final = 50_000


def write_manifest(
    target: str, job: TransferJob, rows: Iterable[Mapping[str, Any]], credentials: CredentialSources
) -> str:
    """Write the lead's report to `target`; see `write_rows`."""
    return write_rows(target, job.destination, SCHEMA, _located(job, rows), credentials)


def write_rows(
    target: str,
    beside: Location,
    schema: pa.Schema,
    rows: Iterator[dict[str, Any]],
    credentials: CredentialSources,
) -> str:
    """Write rows with all columns of a schema to `target`, a path or URL, and return its URL.

    Its suffix is the format: Parquet, JSON Lines or CSV; Parquet without a suffix. The bucket of
    `beside` is opened with the credentials of that, any other bucket with the ambient ones.

    Raises:
        InvalidLocation: `target` is neither a path nor a URL.
        ConfigurationInvalid: its suffix is of another format.
        StoreError: it cannot be written.
    """
    place = beside_location(beside, target)
    body = io.BytesIO()
    _write(body, suffix_of(target, MANIFESTS), schema, rows)
    with open_location(place, credentials) as store:
        store.put(place.key, body.getbuffer())
    return place.url


def _located(job: TransferJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with all columns, and URLs in place of keys."""
    for row in rows:
        yield {
            **{name: row.get(name) for name in SCHEMA.names},
            # A deleted object has no source.
            "source": row["source"] and job.source.url_of(row["source"]),
            "destination": job.destination.url_of(row["destination"]),
        }


def _write(
    body: io.BytesIO, suffix: str, schema: pa.Schema, rows: Iterator[dict[str, Any]]
) -> None:
    if suffix == ".parquet":
        with pq.ParquetWriter(body, schema) as writer:
            while group := list(islice(rows, _ROW_GROUP)):
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
        return
    text = io.TextIOWrapper(body, encoding="utf-8", newline="", write_through=True)
    if suffix == ".csv":
        table = csv.DictWriter(text, schema.names)
        table.writeheader()
        for row in map(in_plain_values, rows):
            lists = {name: " ".join(one) for name, one in row.items() if isinstance(one, list)}
            table.writerow({**row, **lists})
    else:
        text.writelines(json.dumps(in_plain_values(row)) + "\n" for row in rows)
    text.detach()


def in_plain_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its times as texts."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
    }
