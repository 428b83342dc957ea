"""Writes the manifest: one file with a row for every object of a transfer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.output_format import MANIFESTS, suffix_of
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import beside_destination, open_location

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
    """Write the lead's report to `target`, a path or URL, and return its URL.

    Its suffix is the format: Parquet, JSON Lines or CSV; Parquet without a suffix. The
    destination's bucket is opened with the destination's credentials, any other bucket with the
    ambient ones.

    Raises:
        InvalidLocation: `target` is neither a path nor a URL.
        ConfigurationInvalid: its suffix is of another format.
        StoreError: it cannot be written.
    """
    place = beside_destination(job, target)
    body = io.BytesIO()
    _write(body, suffix_of(target, MANIFESTS), _located(job, rows))
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


def _write(body: io.BytesIO, suffix: str, rows: Iterator[dict[str, Any]]) -> None:
    if suffix == ".parquet":
        with pq.ParquetWriter(body, SCHEMA) as writer:
            while group := list(islice(rows, _ROW_GROUP)):
                writer.write_table(pa.Table.from_pylist(group, schema=SCHEMA))
        return
    text = io.TextIOWrapper(body, encoding="utf-8", newline="", write_through=True)
    if suffix == ".csv":
        table = csv.DictWriter(text, SCHEMA.names)
        table.writeheader()
        for row in rows:
            table.writerow({**row, "not_carried": " ".join(row["not_carried"] or ())})
    else:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    text.detach()
