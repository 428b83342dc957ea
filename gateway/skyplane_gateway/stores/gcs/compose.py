"""Joins the parts of an upload: groups of 32 become larger objects, until 32 are left.

Each request deletes its sources. So what a request made stands for them when a completion
is tried again: it has the size and the CRC32C that follow from its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.checksum import combine
from skyplane_gateway.stores.gcs.bucket import GcsBucket

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
    storage_class: str = ""


@dataclass(frozen=True, slots=True)
class WantedPiece:
    """A piece that a completion needs; without a generation it is made of `sources`."""

    name: str
    generation: str
    size_bytes: int
    crc32c: int | None
    sources: tuple[WantedPiece, ...] = ()

    def among(self, stored: Mapping[str, Piece]) -> Piece | None:
        """The stored piece, if it is that one."""
        piece = stored.get(self.name)
        if piece is None:
            return None
        if self.generation:
            return piece if piece.generation == self.generation else None
        known = self.crc32c is not None
        is_same = (piece.size_bytes, piece.crc32c) == (self.size_bytes, self.crc32c)
        return piece if known and is_same else None

    def found(self, stored: Mapping[str, Piece]) -> Iterator[Piece | None]:
        """The stored pieces that make it up, in order; None for a part that is lost."""
        piece = self.among(stored)
        if piece is not None or not self.sources:
            yield piece
        else:
            for source in self.sources:
                yield from source.found(stored)


def grouped(parts: Iterable[WantedPiece], folder: str) -> Sequence[WantedPiece]:
    """At most 32 pieces of all the parts; those that are made are below `folder`."""
    level, pieces = 0, tuple(parts)
    while len(pieces) > MAX_SOURCES:
        level += 1
        groups = [pieces[i : i + MAX_SOURCES] for i in range(0, len(pieces), MAX_SOURCES)]
        pieces = tuple(
            WantedPiece(
                f"{folder}joined-{level}-{number:05}",
                "",
                sum(source.size_bytes for source in group),
                whole_crc32c((source.crc32c, source.size_bytes) for source in group),
                group,
            )
            for number, group in enumerate(groups)
        )
    return pieces


def joined(
    bucket: GcsBucket,
    wanted: Sequence[WantedPiece],
    stored: Mapping[str, Piece],
    storage_class: str,
    metadata: Mapping[str, str],
    what: str,
) -> list[Piece]:
    """The wanted pieces, made where they are not stored, with this metadata. May be repeated."""

    def made(piece: WantedPiece) -> Piece:
        there = piece.among(stored)
        if there is not None:
            return there
        sources = [made(source) for source in piece.sources]
        info = bucket.compose(
            piece.name,
            [(source.name, source.generation) for source in sources],
            what,
            resource=resource,
        )
        return Piece(piece.name, info.etag, info.size_bytes, info.crc32c, storage_class)

    resource: dict[str, Any] = {"metadata": dict(metadata)}
    if storage_class:
        resource["storageClass"] = storage_class
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(made, wanted))


def whole_crc32c(pieces: Iterable[tuple[int | None, int]]) -> int | None:
    """CRC32C of adjacent pieces, each a CRC32C with a size; None where one is not known."""
    whole = 0
    for crc32c, size_bytes in pieces:
        if crc32c is None:
            return None
        whole = combine(whole, crc32c, size_bytes)
    return whole
