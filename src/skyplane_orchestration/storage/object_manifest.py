"""Writes the manifest: one Parquet file with a row for every object of a transfer."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage.open import open_location

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
    target: str,
    job: TransferJob,
    rows: Iterable[Mapping[str, Any]],
    credentials: CredentialSources,
) -> str:
    """Write the lead's report to `target`, a path or URL, and return its URL.

    The destination's bucket is opened with the destination's credentials, any other bucket with
    the ambient ones.

    Raises:
        InvalidLocation: `target` is neither a path nor a URL.
        StoreError: it cannot be written.
    """
    place = Location(target)
    if (place.kind, place.bucket) == (job.destination.kind, job.destination.bucket):
        place = Location(
            target,
            job.destination.region,
            job.destination.endpoint_url,
            job.destination.credential_ref,
            job.destination.options,
        )
    body = io.BytesIO()
    with pq.ParquetWriter(body, SCHEMA) as writer:
        for table in _tables(job, rows):
            writer.write_table(table)
    with open_location(place, credentials) as store:
        store.put(place.key, body.getbuffer())
    return place.url


def _tables(job: TransferJob, rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
    rest = iter(rows)
    while group := list(islice(rest, _ROW_GROUP)):
        yield pa.Table.from_pylist(
            [
                {
                    **row,
                    # A deleted object has no source.
                    "source": row["source"] and job.source.url_of(row["source"]),
                    "destination": job.destination.url_of(row["destination"]),
                }
                for row in group
            ],
            schema=SCHEMA,
        )
