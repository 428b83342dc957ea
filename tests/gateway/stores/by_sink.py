"""Writes as a sink makes them: it finds what an answer that was lost has left."""

from __future__ import annotations

from typing import Any

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, ObjectInfo, PartInfo
from skyplane_gateway.common.schema import encode
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores.base import ObjectStore


def complete_by_sink(
    store: ObjectStore, upload_id: str, parts: list[PartInfo], body: bytes
) -> dict[str, Any]:
    """Complete the upload of `k`. Returns what the lead is told."""
    order = {
        "key": "k",
        "upload_id": upload_id,
        "parts": [encode(part) for part in parts],
        "precondition": encode(IF_ABSENT),
        "size_bytes": len(body),
        "crc32c": crc32c(body),
    }
    return Destination(store, "stored").run("complete", order)


def put_by_sink(store: ObjectStore, key: str, body: bytes) -> ObjectInfo:
    """Write an object that is not there."""
    attributes = ObjectAttributes()
    return Destination(store, "stored").put(key, body, crc32c(body), attributes, IF_ABSENT)
