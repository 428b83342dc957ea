"""The report of a transfer: counters in memory, one row per object on disk.

Rows beyond a mebibyte go to an unnamed temporary file: the lead's memory does not grow with
the number of objects, and a killed lead leaves no file behind.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from skyplane_gateway.common.errors import NotRestored, SkyplaneError
from skyplane_gateway.common.objects import is_time_pin
from skyplane_gateway.journal.document import DoneRow
from skyplane_gateway.selection import Selection, SourceDigest

ObjectState = Literal["copied", "skipped", "failed"]

_IN_MEMORY_BYTES: Final = 1 << 20

#: A page of the report, in bytes of JSON lines.
PAGE_BYTES: Final = 1 << 20

#: Longest reason of a failure in a row; a row stays far shorter than a page.
_REASON_CHARACTERS: Final = 2000

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
    """The report of one transfer."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.failures: list[dict[str, Any]] = []
        #: A heap of sizes, source keys and destination keys.
        self._largest: list[tuple[int, str, str]] = []
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        self._end = 0

    def copied(
        self,
        row: Selection,
        done: DoneRow | None,
        attempts: int,
        not_carried: Iterable[str] = (),
        *,
        is_server_side: bool = False,
    ) -> None:
        """An object is durable and verified.

        Args:
            done: None where an earlier epoch copied it and its journal has no details.
            attempts: 0 for an object that an earlier epoch copied.
        """
        self.counters.copied += 1
        self.counters.copied_bytes += row.source.size_bytes
        if attempts == 0:
            self.counters.copied_earlier += 1
            self.counters.copied_earlier_bytes += row.source.size_bytes
        self._note_size(row)
        more: dict[str, object] = {}
        if done is not None:
            self.counters.pinned_by_time += is_time_pin(row.source.etag)
            etags = {"source_etag": row.source.etag, "destination_etag": done.etag}
            more = {name: etag for name, etag in etags.items() if etag}
            more["crc32c"] = done.crc32c
        if is_server_side:
            self.counters.server_side += 1
            self.counters.server_side_bytes += row.source.size_bytes
        names = sorted(not_carried)
        if names:
            more["not_carried"] = names
            self.counters.not_carried += 1
        for name in names:
            by_name = self.counters.not_carried_by_name
            by_name[name] = by_name.get(name, 0) + 1
        self._add("copied", row, attempts, **more)

    def _note_size(self, row: Selection) -> None:
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

    def skipped(self, row: Selection) -> None:
        self.counters.skipped += 1
        self.counters.skipped_bytes += row.source.size_bytes
        self.counters.archived += row.refusal is NotRestored
        self._add("skipped", row, 0, reason=row.reason)

    def failed(self, row: Selection, error: SkyplaneError, attempts: int) -> None:
        self.counters.failed += 1
        self.counters.failed_bytes += row.source.size_bytes
        # A store may answer with a whole page of HTML.
        reason = error.message[:_REASON_CHARACTERS]
        added = self._add("failed", row, attempts, code=error.code, reason=reason)
        if len(self.failures) < _LISTED_FAILURES:
            self.failures.append(added)

    def _add(
        self, state: ObjectState, selected: Selection, attempts: int, **more: object
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "state": state,
            "source": selected.source.key,
            "destination": selected.destination_key,
            "bytes": selected.source.size_bytes,
            "attempts": attempts,
            **more,
        }
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        self._rows.seek(self._end)
        self._rows.write(line)
        self._end += len(line)
        return row

    def page(self, offset: int) -> dict[str, Any]:
        """Rows from byte `offset` on: `rows`, `next_offset`, `complete` (nothing after)."""
        offset = min(max(offset, 0), self._end)
        self._rows.seek(offset)
        data = self._rows.read(PAGE_BYTES)
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
