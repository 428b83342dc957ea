"""Copies the objects that a listing selected, and records each of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from skyplane_gateway.common.errors import PreconditionFailed, ReadBackMismatch, StoreError
from skyplane_gateway.common.objects import IF_ABSENT, Precondition
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.fresh_sources import FreshSources
from skyplane_gateway.lead.multipart import (
    CopyAgain,
    MultipartCopier,
    ObjectFailed,
    SendWhole,
    source_changed,
)
from skyplane_gateway.lead.recorder import Recorder
from skyplane_gateway.lead.turns import end_turn, reach_turn
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.source.chunk_orders import RangeOrder, RangeOutcome

log = logging.getLogger(__name__)


class Copier:
    """Copies objects of one transfer: many small ones in one chunk, or one in parts.

    Each object is pinned to its listed version. When it is overwritten meanwhile, the copy
    starts again with the new version; when it is overwritten again, it has failed.

    Both methods raise GatewayLost when the transfer must stop.
    """

    def __init__(
        self,
        context: TransferContext,
        journal: JournalWriter,
        multipart: MultipartCopier,
        recorder: Recorder,
    ) -> None:
        self._context = context
        self._spec = context.spec
        self._kept = context.spec.kept
        self._journal = journal
        self._multipart = multipart
        self._recorder = recorder
        self._fresh = FreshSources(context)

    async def copy_whole(self, batch: Sequence[Selection]) -> None:
        """Copy objects in one chunk, each whole."""
        if own := [row for row in batch if row.may_be_own_copy]:
            rest = await self._find_landed(own)
            batch = [*(row for row in batch if not row.may_be_own_copy), *rest]
        if not batch:
            return
        for row in await self._copy_whole(batch):
            await self._copy_again(row, CopyAgain())

    async def copy_in_parts(self, row: Selection) -> None:
        """Copy one large object as a multipart upload."""
        try:
            await self._copy_in_parts(row)
        except SendWhole:
            await self.copy_whole([row])
        except CopyAgain as again:
            await self._copy_again(row, again)

    async def _copy_whole(self, batch: Sequence[Selection]) -> list[Selection]:
        """Copy and record; returns, unrecorded, the objects whose source has changed."""
        if self._spec.conflict == "fail":
            # Before the write: a resume could take our own object for another writer's.
            await self._journal.flush()
        await self._fresh.wait(batch)
        began_s = asyncio.get_running_loop().time()
        ranges = tuple(map(self._whole, batch))
        outcomes, attempts = await self._deliver(ranges)
        stale = await self._stale(batch, outcomes, began_s)
        changed = list(stale.values())
        for row, outcome in zip(batch, outcomes, strict=True):
            if row.source.key in stale:
                continue
            if outcome.error is None:
                self._copied(row, outcome, attempts)
            elif source_changed(outcome):
                changed.append(row)
            else:
                self._recorder.failed(row, outcome.error, attempts)
        return changed

    async def _stale(
        self, batch: Sequence[Selection], outcomes: Sequence[RangeOutcome], began_s: float
    ) -> dict[str, Selection]:
        """Source key -> an object that was written, but was overwritten at the source meanwhile.

        No lead can ask between the read of a whole object and its commit.
        """
        made = {
            row.source.key: outcome.etag
            for row, outcome in zip(batch, outcomes, strict=True)
            if outcome.error is None
        }
        rows = [row for row in batch if row.source.key in made]
        try:
            changed = await self._fresh.changed(rows, began_s)
        except StoreError as error:
            log.warning("the source of %d objects cannot be asked again: %s", len(rows), error)
            changed = rows
        return {
            row.source.key: replace(row, precondition=Precondition(if_match=made[row.source.key]))
            for row in changed
        }

    async def _find_landed(self, rows: Sequence[Selection]) -> list[Selection]:
        """Record the objects that are at the destination, equal to the source; returns the rest.

        Sinks look for them, and write no object in the place of another one.
        """
        ranges = tuple(replace(self._whole(row), precondition=IF_ABSENT) for row in rows)
        outcomes, attempts = await self._deliver(ranges, was_sent=True)
        rest = []
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome.error is None:
                self._copied(row, outcome, attempts)
            else:
                rest.append(row)
        return rest

    async def _deliver(
        self, ranges: tuple[RangeOrder, ...], *, was_sent: bool = False
    ) -> tuple[list[RangeOutcome], int]:
        await reach_turn()
        end_turn()
        return await self._context.delivery.deliver(
            "objects",
            ranges,
            kept=self._kept,
            strict_metadata=self._spec.strict_metadata,
            was_sent=was_sent,
        )

    def _whole(self, row: Selection) -> RangeOrder:
        return RangeOrder(
            source_key=row.source.key,
            etag=row.source.etag,
            offset=0,
            length=row.source.size_bytes,
            destination_key=row.destination_key,
            precondition=row.precondition,
            storage_class=row.source.storage_class,
            mark=self._kept.mark_of(row.source),
            crc32c=row.source.crc32c,
        )

    def _copied(self, row: Selection, outcome: RangeOutcome, attempts: int) -> None:
        lacks = {*row.source.not_carried, *outcome.not_carried}
        self._recorder.copied(
            row, outcome.etag, outcome.crc32c, attempts, lacks, compared=outcome.compared
        )

    async def _copy_in_parts(self, row: Selection) -> None:
        """Copy and record. Raises CopyAgain: nothing was recorded."""
        try:
            copy = await self._multipart.copy(row)
        except ObjectFailed as failure:
            attempts = 1 if failure.error.is_permanent else self._context.retries.attempts
            self._recorder.failed(row, failure.error, attempts)
        else:
            self._recorder.copied(
                row,
                copy.etag,
                copy.crc32c,
                copy.attempts,
                copy.not_carried,
                compared=copy.compared,
                is_server_side=copy.is_server_side,
            )

    async def _copy_again(self, row: Selection, again: CopyAgain) -> None:
        """Copy the source's current version from its beginning, once."""
        try:
            found = await self._context.source.head(row.source.key)
            fresh = replace(row, source=self._kept.of_source(found))
        except StoreError as error:
            self._recorder.failed(row, error, 1)
            return
        if isinstance(again.error, ReadBackMismatch):
            # The sink removed the bad object; the object that it replaced is gone too.
            fresh = replace(fresh, precondition=IF_ABSENT)
        log.info("%r is copied again: %s", row.source.key, again.error or "its source changed")
        twice: StoreError = PreconditionFailed(
            f"the source object {row.source.key!r} changed twice while it was copied; "
            "copy it again once nobody writes to it"
        )
        try:
            if fresh.source.size_bytes > self._context.whole_bytes:
                await self._copy_in_parts(fresh)
                return
            has_failed = bool(await self._copy_whole([fresh]))
        except CopyAgain as failure:
            has_failed, twice = True, failure.error or twice
        if has_failed:
            self._recorder.failed(fresh, twice, 2)
