"""Joins more than 32 objects: groups of 32 become larger objects, until 32 are left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from skyplane_gateway.checksum import combine
from skyplane_gateway.stores.gcs.bucket import Bucket

#: The service takes no more in one request.
MAX_SOURCES: Final = 32
#: Compose requests at once; each takes the service tenths of a second.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """A temporary object: one part, or several that were joined."""

    name: str
    generation: str
    size_bytes: int
    crc32c: int | None


def compose(bucket: Bucket, folder: str, pieces: Sequence[Piece], what: str) -> Sequence[Piece]:
    """At most 32 pieces with the same bytes; those that are made are below `folder`.

    May be repeated: each request replaces the piece of an earlier attempt.
    """
    level = 0
    while len(pieces) > MAX_SOURCES:
        level += 1
        groups = [pieces[i : i + MAX_SOURCES] for i in range(0, len(pieces), MAX_SOURCES)]
        names = [f"{folder}joined-{level}-{number:05}" for number in range(len(groups))]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            pieces = list(pool.map(partial(_joined, bucket, what), names, groups))
    return pieces


def _joined(bucket: Bucket, what: str, name: str, group: Sequence[Piece]) -> Piece:
    made = bucket.compose(name, [(piece.name, piece.generation) for piece in group], what)
    return Piece(name, made.etag, made.size_bytes, made.crc32c)


def whole_crc32c(pieces: Iterable[tuple[int | None, int]]) -> int | None:
    """CRC32C of adjacent pieces, each a CRC32C with a size; None where one is not known."""
    whole = 0
    for crc32c, size_bytes in pieces:
        if crc32c is None:
            return None
        whole = combine(whole, crc32c, size_bytes)
    return whole
