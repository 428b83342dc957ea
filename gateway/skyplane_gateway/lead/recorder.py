"""Records the end of each object, in the report and in the journal."""

from __future__ import annotations

from collections.abc import Iterable

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.journal.document import DoneRow
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.selection import MARGIN_S, Selection


class Recorder:
    """The report and the journal of one transfer."""

    def __init__(self, context: TransferContext, journal: JournalState) -> None:
        self._report = context.report
        self._reads_files = context.spec.source.kind == "file"
        self._clock = context.clock
        self._journal = journal

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
        """This epoch has copied and verified the object."""
        done = DoneRow(
            key=row.destination_key,
            etag=etag,
            source_etag=row.source.etag,
            size_bytes=row.source.size_bytes,
            crc32c=crc32c,
            # Twice, since the clocks of destination and lead may differ.
            is_fresh=row.source.last_modified + 2 * MARGIN_S > self._clock.wall(),
        )
        # Files have no checksums.
        has_none = not compared and row.source.size_bytes > 0 and not self._reads_files
        self._report.counters.unchecked += has_none
        self._report.copied(row, done, attempts, not_carried, is_server_side=is_server_side)
        self._journal.committed(done)

    def done(self, row: Selection, done: DoneRow) -> None:
        """The object is at the destination, verified; an earlier epoch copied it."""
        self._report.copied(row, done, 0)
        self._journal.committed(done)

    def ended_earlier(self, row: Selection) -> None:
        """An earlier epoch copied the object; its journal has no details."""
        self._report.copied(row, None, 0)
        self._journal.skipped(row.destination_key)

    def skipped(self, row: Selection) -> None:
        """The conflict rule keeps the object that is there."""
        self._report.skipped(row)
        self._journal.skipped(row.destination_key)

    def failed(self, row: Selection, error: SkyplaneError, attempts: int = 0) -> None:
        """The object was not copied."""
        self._report.failed(row, error, attempts)
        self._journal.failed(row.destination_key, error.code)
