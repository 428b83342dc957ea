"""The index of a segment: its rows in blocks that a gateway reads without pyarrow.

A block is the JSON text of columns, compressed by zlib, whose checksum tells a damaged one. A page
of a listing may begin at any block: the pointer has the first key of each.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from skyplane_gateway.common.errors import ManifestUnreadable

#: Rows of a block, unless that makes too many blocks for the pointer.
_BLOCK_ROWS: Final = 4096
_MOST_BLOCKS: Final = 512

_LEVEL: Final = 1  # A higher one takes longer than it saves on the line.


class Row(NamedTuple):
    """What an index has of one key.

    Attributes:
        key: below the folder of the manifest.
        copy: identity of the copy; empty for a key that was deleted.
        store, source_key, version: the object that the copy was made of.
    """

    key: str
    copy: str
    store: str
    source_key: str
    version: str
    crc32c: int | None
    size_bytes: int


def encode_index(
    rows: Iterable[Row], count: int
) -> tuple[bytes, tuple[str, ...], list[tuple[str, int]]]:
    """The index of `count` rows in the order of their keys, its stores, and its blocks."""
    left, numbers = iter(rows), dict[str, int]()
    step = max(_BLOCK_ROWS, -(-count // _MOST_BLOCKS))
    body, blocks = bytearray(), []
    while part := list(islice(left, step)):
        for row in part:
            numbers.setdefault(row.store, len(numbers))
        blocks.append((part[0].key, len(body)))
        body += zlib.compress(json.dumps(_columns(part, numbers)).encode(), _LEVEL)
    return bytes(body), tuple(numbers), blocks


def _columns(rows: Sequence[Row], numbers: dict[str, int]) -> list[list[object]]:
    """Leaves out a version that is that of the copy, and a name that both keys have."""
    return [
        [row.key for row in rows],
        [row.copy for row in rows],
        [numbers[row.store] for row in rows],
        [_source(row) for row in rows],
        [None if row.version == row.copy else row.version for row in rows],
        [row.crc32c for row in rows],
        [row.size_bytes for row in rows],
    ]


def _source(row: Row) -> str | list[str]:
    """The folder before the same name; or the whole key, in a list."""
    if row.source_key.endswith(row.key):
        return row.source_key[: len(row.source_key) - len(row.key)]
    return [row.source_key]


def decode_block(body: bytes, stores: Sequence[str]) -> Iterator[Row]:
    """The rows of a block. Raises ManifestUnreadable."""
    try:
        keys, copies, numbers, sources, versions, checksums, sizes = json.loads(
            zlib.decompress(body)
        )
        return map(
            Row,
            keys,
            copies,
            [stores[number] for number in numbers],
            [
                front + key if isinstance(front, str) else front[0]
                for front, key in zip(sources, keys, strict=True)
            ],
            [
                copy if version is None else version
                for version, copy in zip(versions, copies, strict=True)
            ],
            checksums,
            sizes,
        )
    except (zlib.error, ValueError, LookupError, TypeError) as error:
        raise ManifestUnreadable(f"a segment of the manifest is damaged: {error}") from error
