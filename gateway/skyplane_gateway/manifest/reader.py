"""Reads the rows of a manifest beside a listing of its place."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from itertools import chain
from typing import Final

from skyplane_gateway.common.errors import ManifestUnreadable, NotFound, StoreError
from skyplane_gateway.common.key_cursor import KeyCursor
from skyplane_gateway.common.objects import CopyState, ObjectInfo, RecordedCopy
from skyplane_gateway.common.source_version import etag_of, identity_of, time_and_size_of
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    Elsewhere,
    Pointer,
    Segment,
    manifest_prefix,
    read_pointer,
)
from skyplane_gateway.manifest.index import Row, decode_block
from skyplane_gateway.stores.base import ObjectStore, read_exactly

log = logging.getLogger(__name__)

#: Blocks of an index that are read at once.
_READ_BYTES: Final = 2 << 20


class ManifestReader:
    """The rows of the manifest below a folder, as its pointer said at the first read.

    Where it cannot be read, a listing goes on without rows. Thread-safe.

    Args:
        read: what an earlier request has found, in place of `read_pointer`.

    Attributes:
        trouble: why rows are missing; empty where none are.
        is_trusted: a listing was made by its rows alone.
        pointer: None before the first read, and where there is no manifest.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        at: Elsewhere | None = None,
        read: Callable[[], tuple[Pointer, str] | None] | None = None,
    ) -> None:
        self.trouble = ""
        self.is_trusted = False
        self.pointer: Pointer | None = None
        self._store = store
        self._folder = folder
        self._read_pointer = read or partial(read_pointer, store, folder, at)
        self._prefix = manifest_prefix(folder) if at is None else at.prefix
        self._kind = store.spec.kind if at is None else at.kind
        self._lock = threading.Lock()
        self._is_open = False
        #: Where the last page of a listing ended.
        self._held: KeyCursor[Row] | None = None

    @property
    def trusted_unix_s(self) -> float:
        """When it was written, if a listing was made by its rows alone; else 0."""
        snapshots = self.pointer.snapshots if self.pointer is not None else ()
        return snapshots[-1].committed_unix_s if self.is_trusted and snapshots else 0.0

    def beside(
        self, listing: Iterator[ObjectInfo], prefix: str, start_after: str | None = None
    ) -> Iterator[ObjectInfo]:
        """The same rows of a listing of the place, with what the manifest says of each."""
        cursor: KeyCursor[Row] | None = None
        try:
            for info in listing:
                if cursor is None:  # An empty place needs no manifest.
                    start = max(prefix, start_after or "").removeprefix(self._folder)
                    cursor = self._cursor_from(start)
                row = cursor.at(info.key[len(self._folder) :])
                if row is not None and row.copy:
                    # The listing has made the row for this caller alone. A copy of each would take
                    # half of the time of a comparison.
                    state = _state_of(self._kind, row.copy, info)
                    copy = RecordedCopy(row.store, row.source_key, row.version, row.crc32c, state)
                    object.__setattr__(info, "recorded", copy)
                yield info
        finally:
            self._held = cursor

    def _cursor_from(self, start: str) -> KeyCursor[Row]:
        """The cursor of an earlier page, if it has not passed what comes from `start` on."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None and held.passed <= start:
            return held
        return KeyCursor(self._rows_or_less(start), start)

    def listing(
        self, store_lists: Iterator[ObjectInfo], prefix: str, start_after: str | None = None
    ) -> Iterator[ObjectInfo]:
        """What the place has below a prefix by the manifest alone; where there is none that can be
        read, the listing of the store.

        Raises StoreError: later, rows that cannot be read are no absent objects.
        """
        start = max(prefix, start_after or "").removeprefix(self._folder)
        try:
            rows = self.rows(start)
            first = next(rows, None)
        except StoreError as error:
            self._is_less(error)
            first = None
        if first is None and (self.trouble or self.pointer is None):
            yield from store_lists
            return
        self.is_trusted = True
        for row in chain([] if first is None else [first], rows):
            key = self._folder + row.key
            if not key.startswith(prefix):
                return
            if row.copy and key != start_after:
                etag = etag_of(row.copy) if self._kind == "file" else row.copy
                recorded = RecordedCopy(row.store, row.source_key, row.version, row.crc32c, "same")
                # Without a time: what no row decides is asked.
                yield ObjectInfo(key, row.size_bytes, etag, 0.0, recorded=recorded)

    def rows(self, start: str = "") -> Iterator[Row]:
        """The newest row of each key from `start` on, ascending; deleted keys included.

        Raises:
            ManifestUnreadable: it is damaged, or a segment is missing.
            StoreError: as the store says.
        """
        pointer = self._opened()
        segments = pointer.newest if pointer is not None else ()
        by_age = [self._segment_rows(one, start) for one in reversed(segments)]
        if len(by_age) == 1:
            yield from by_age[0]
            return
        last = None
        for row in merge(*by_age, key=lambda one: one.key):  # Of equal keys the newest first.
            if row.key != last:
                yield row
            last = row.key

    def _rows_or_less(self, start: str) -> Iterator[Row]:
        try:
            yield from self.rows(start)
        except StoreError as error:
            self._is_less(error)

    def _is_less(self, error: StoreError) -> None:
        if not self.trouble:  # The result of the run has it as a warning.
            log.info("objects are compared without the manifest: %s", error.message)
        self.trouble = self.trouble or error.message

    def _opened(self) -> Pointer | None:
        with self._lock:
            if not self._is_open:
                found = self._read_pointer()
                self.pointer = None if found is None else found[0]
                self._is_open = True
            return self.pointer

    def _segment_rows(self, segment: Segment, start: str) -> Iterator[Row]:
        firsts = [first for first, _ in segment.blocks]
        ends = [*(offset for _, offset in segment.blocks[1:]), segment.index_bytes]
        at = max(0, bisect_right(firsts, start) - 1)
        while at < len(firsts):
            begin, upto = segment.blocks[at][1], at + 1
            while upto < len(firsts) and ends[upto] - begin <= _READ_BYTES:
                upto += 1
            body = self._read(segment, begin, ends[upto - 1] - begin)
            for number in range(at, upto):
                block = body[segment.blocks[number][1] - begin : ends[number] - begin]
                for row in decode_block(bytes(block), segment.stores):
                    if row.key >= start:
                        yield row
            at = upto

    def _read(self, segment: Segment, offset: int, length: int) -> bytearray:
        key = f"{self._prefix}{segment.name}{INDEX_SUFFIX}"
        try:
            with self._store.read(key, offset=offset, length=length, if_match=None) as reader:
                return read_exactly(reader, length)
        except NotFound as error:
            raise ManifestUnreadable(f"a segment of the manifest is gone: {key}") from error


def _state_of(kind: str, copy: str, info: ObjectInfo) -> CopyState:
    if copy == identity_of(kind, info):
        return "same"
    is_touched = kind == "file" and time_and_size_of(copy) == time_and_size_of(info.etag)
    return "touched" if is_touched else "changed"
