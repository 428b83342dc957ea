"""A place in memory with a manifest that is written without pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    POINTER,
    Pointer,
    Segment,
    Snapshot,
    encode_pointer,
    manifest_prefix,
    place_of,
)
from skyplane_gateway.manifest.index import Row, encode_index

#: Key -> identity of the copy; empty for one that was deleted.
Rows = Mapping[str, str]


class Place:
    """An empty bucket; copies and manifest are below `folder`."""

    def __init__(self, folder: str = "f/") -> None:
        create_bucket("manifests")
        self.store = MemoryStore(StoreSpec("memory", "manifests"))
        self.folder = folder

    def copy(self, key: str) -> str:
        """Write a copy; its identity."""
        return self.store.put(self.folder + key, key.encode()).etag

    def listing(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Without the manifest's own files."""
        for info in self.store.list(self.folder + prefix, start_after=start_after):
            if "/.skyplane/" not in info.key:
                yield info

    def write(self, *segments: Rows) -> Pointer:
        """The manifest with these segments, the oldest first."""
        found = tuple(self._segment(f"s{at}", rows) for at, rows in enumerate(segments))
        names = tuple(one.name for one in found)
        snapshot = Snapshot("id", 1, "run", "", "", 1.7e9, 0, 0, names)
        pointer = Pointer(place_of(self.store, self.folder), found, (snapshot,))
        self.point(pointer)
        return pointer

    def point(self, pointer: Pointer) -> None:
        self.store.put(manifest_prefix(self.folder) + POINTER, encode_pointer(pointer))

    def _segment(self, name: str, rows: Rows) -> Segment:
        written = [row_of(key, copy) for key, copy in sorted(rows.items())]
        body, stores, blocks = encode_index(written, len(written))
        self.store.put(self.index_key(name), body)
        return Segment(name, len(written), 0, len(body), "", "", stores, tuple(blocks))

    def index_key(self, name: str) -> str:
        return manifest_prefix(self.folder) + name + INDEX_SUFFIX


def row_of(key: str, copy: str) -> Row:
    return Row(key, copy, "s3://a/", f"p/{key}", f"v-{copy}", 7, len(key.encode()))


def recorded(rows: Sequence[ObjectInfo]) -> dict[str, str | None]:
    """Key -> the recorded version of its source; None where there is no row."""
    return {row.key: row.recorded.version if row.recorded else None for row in rows}
