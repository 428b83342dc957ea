"""Records the end of each object, in the report and in the journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import NotRestored, SkyplaneError
from skyplane_gateway.common.objects import is_time_pin
from skyplane_gateway.common.source_version import identity_of
from skyplane_gateway.journal.document import DoneRow
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.selection.difference import MARGIN_S
from skyplane_gateway.selection.selector import Selection

#: Longest reason of a failure in a row; a row stays far shorter than a page.
_REASON_CHARACTERS: Final = 2000


class Recorder:
    """The report and the journal of one transfer.

    Args:
        source_kind, destination_kind: of the stores. Files have no checksums.
    """

    def __init__(
        self,
        report: Report,
        journal: JournalState,
        clock: Clock,
        *,
        source_kind: str,
        destination_kind: str,
    ) -> None:
        self._report = report
        self._counters = report.counters
        self._journal = journal
        self._clock = clock
        self._reads_files = source_kind == "file"
        self._kinds = source_kind, destination_kind

    def copied(
        self,
        row: Selection,
        etag: str,
        crc32c: int,
        attempts: int,
        not_carried: Iterable[str],
        *,
        compared: str,
        is_server_side: bool = False,
    ) -> None:
        """This epoch has copied and verified the object; `compared` as in `RangeOutcome`."""
        size = row.source.size_bytes
        self._counters.unchecked += not compared and size > 0 and not self._reads_files
        if is_server_side:
            self._counters.server_side += 1
            self._counters.server_side_bytes += size
        names = sorted(not_carried)
        self._counters.not_carried += bool(names)
        for name in names:
            by_name = self._counters.not_carried_by_name
            by_name[name] = by_name.get(name, 0) + 1
        # Twice, since the clocks of destination and lead may differ.
        is_fresh = row.source.last_modified + 2 * MARGIN_S > self._clock.wall()
        key, source_etag = row.destination_key, row.source.etag
        done = DoneRow(key, etag, source_etag, size, crc32c, is_fresh=is_fresh)
        more = {"not_carried": names} if names else {}
        self._done(row, done, attempts, **more, **self._identity(row))

    def done(self, row: Selection, done: DoneRow) -> None:
        """The object is at the destination, verified; an earlier epoch copied it."""
        # A file may have been written in place since, and have got its time back.
        self._done(row, done, 0, **({} if self._reads_files else self._identity(row)))

    def _identity(self, row: Selection) -> dict[str, object]:
        """What a manifest keeps of the source."""
        version = identity_of(self._kinds[0], row.source)
        return {"version": version, "source_unix_s": row.source.last_modified} if version else {}

    def _done(self, row: Selection, done: DoneRow, attempts: int, **more: object) -> None:
        self._counters.pinned_by_time += is_time_pin(row.source.etag)
        etags = {"source_etag": row.source.etag, "destination_etag": done.etag}
        known = {name: etag for name, etag in etags.items() if etag}
        self._add_copied(row, attempts, **known, crc32c=done.crc32c, **more)
        self._journal.committed(done)

    def ended_earlier(self, row: Selection) -> None:
        """An earlier epoch copied the object; its journal has no details."""
        self._add_copied(row, 0)
        self._journal.skipped(row.destination_key)

    def _add_copied(self, row: Selection, attempts: int, **more: object) -> None:
        size = row.source.size_bytes
        self._counters.edited += row.is_edited
        self._counters.copied += 1
        self._counters.copied_bytes += size
        if attempts == 0:
            self._counters.copied_earlier += 1
            self._counters.copied_earlier_bytes += size
        self._report.note_size(row)
        self._report.add("copied", row, attempts, **more)

    def skipped(self, row: Selection) -> None:
        """The conflict rule keeps the object that is there."""
        self._counters.skipped += 1
        self._counters.skipped_bytes += row.source.size_bytes
        self._counters.archived += row.refusal is NotRestored
        proved: dict[str, object] = {}
        if row.is_proved and row.destination is not None:
            copy = identity_of(self._kinds[1], row.destination)
            proved = {"copy": copy, "crc32c": row.crc32c, **self._identity(row)} if copy else {}
        self._counters.edited += row.is_edited
        self._report.add("skipped", row, 0, reason=row.reason, **proved)
        self._journal.skipped(row.destination_key)

    def failed(self, row: Selection, error: SkyplaneError, attempts: int = 0) -> None:
        """The object was not copied."""
        self._counters.failed += 1
        self._counters.failed_bytes += row.source.size_bytes
        # A store may answer with a whole page of HTML.
        reason = error.message[:_REASON_CHARACTERS]
        self._report.add("failed", row, attempts, code=error.code, reason=reason)
        self._journal.failed(row.destination_key, error.code)
