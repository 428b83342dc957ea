"""The report of a transfer: counters in memory, one row per object on disk.

Rows beyond a mebibyte go to an unnamed temporary file: the lead's memory does not grow with
the number of objects, and a killed lead leaves no file behind.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.selection.source_digest import SourceDigest

ObjectState = Literal["copied", "skipped", "failed"]

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))

_IN_MEMORY_BYTES: Final = 1 << 20

#: A page of the report, in bytes of JSON lines.
PAGE_BYTES: Final = 1 << 20

#: Failures that the status document lists.
_LISTED_FAILURES: Final = 50

#: Copied objects that the status document lists.
_LISTED_LARGEST: Final = 10


@dataclass(slots=True)
class Counters:
    """Counters of a transfer.

    Attributes:
        copied_earlier: objects in `copied` that an earlier epoch copied.
        pinned_by_time: objects in `copied` whose source has no ETag, so that only time and
            size identify its version.
        listed: objects of the source so far, filtered ones included.
        is_listed: both listings have ended.
        digest: of the objects in `found`.
        reserved: how many listed keys are reserved for journals; not part of `found`.
        unmatched_patterns: patterns that no key of the source matches; known once `is_listed`.
        manifest_trouble: why objects were compared without the manifest; empty where none were.
        trusted_unix_s: when the manifest was written that stood for the listing of the
            destination; 0 for none.
        edited: objects that were changed at the destination since they were copied.
        archived: objects in `skipped` that the source has archived.
        server_side, server_side_bytes: objects that the store copied itself, in this epoch.
        unchecked: objects of which their source states no checksum that could be compared.
        not_carried: objects whose copies of this epoch lack attributes of their source.
        not_carried_by_name: attribute (see `ObjectInfo.not_carried`) -> how many lack it.
    """

    found: int = 0
    found_bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0
    copied_earlier: int = 0
    copied_earlier_bytes: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    failed: int = 0
    failed_bytes: int = 0
    pinned_by_time: int = 0
    listed: int = 0
    is_listed: bool = False
    digest: SourceDigest = field(default_factory=SourceDigest)
    reserved: int = 0
    unmatched_patterns: tuple[str, ...] = ()
    manifest_trouble: str = ""
    trusted_unix_s: float = 0.0
    edited: int = 0
    archived: int = 0
    server_side: int = 0
    server_side_bytes: int = 0
    unchecked: int = 0
    not_carried: int = 0
    not_carried_by_name: dict[str, int] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Objects that were found and have not ended."""
        return self.found - self.copied - self.skipped - self.failed


class Report:
    """The report of one transfer; a `Recorder` fills it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.failures: list[dict[str, Any]] = []
        #: A heap of sizes, source keys and destination keys.
        self._largest: list[tuple[int, str, str]] = []
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        self._end = 0

    def note_size(self, row: Selection) -> None:
        """An object was copied; it may be one of the largest."""
        found = (row.source.size_bytes, row.source.key, row.destination_key)
        if len(self._largest) < _LISTED_LARGEST:
            heapq.heappush(self._largest, found)
        else:
            heapq.heappushpop(self._largest, found)

    @property
    def largest(self) -> list[dict[str, Any]]:
        """The largest copied objects, the largest first, then in the order of their keys."""
        rows = sorted(self._largest, key=lambda row: (-row[0], row[1]))
        return [{"source": key, "destination": to, "bytes": size} for size, key, to in rows]

    def add(self, state: ObjectState, selected: Selection, attempts: int, **more: object) -> None:
        """The row of an object."""
        row: dict[str, Any] = {
            "state": state,
            "source": selected.source.key,
            "destination": selected.destination_key,
            "bytes": selected.source.size_bytes,
            "attempts": attempts,
            **more,
        }
        line = _ENCODER.encode(row).encode() + b"\n"
        if self._rows.tell() != self._end:
            # An earlier write failed in its middle, for example on a full disk.
            self._rows.seek(self._end)
        self._rows.write(line)
        self._end += len(line)
        if state == "failed" and len(self.failures) < _LISTED_FAILURES:
            self.failures.append(row)

    def page(self, offset: int) -> dict[str, Any]:
        """Rows from byte `offset` on: `rows`, `next_offset`, `complete` (nothing after)."""
        offset = min(max(offset, 0), self._end)
        self._rows.seek(offset)
        data = self._rows.read(PAGE_BYTES)
        self._rows.seek(self._end)
        # A page ends with a whole line; a line is far shorter than a page.
        data = data[: data.rfind(b"\n") + 1]
        next_offset = offset + len(data)
        return {
            "rows": [json.loads(line) for line in data.splitlines()],
            "next_offset": next_offset,
            "complete": next_offset >= self._end,
        }

    def close(self) -> None:
        self._rows.close()
