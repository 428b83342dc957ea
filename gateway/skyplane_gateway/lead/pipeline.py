"""What there is to do: lists both ends, settles each object, hands it to the movers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final

from skyplane_gateway.config import TransferSpec
from skyplane_gateway.errors import AlreadyExists, InvalidKey, StoreError
from skyplane_gateway.lead.copier import Movers
from skyplane_gateway.lead.deferred_objects import Waiting
from skyplane_gateway.lead.listing_diff import Listing
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.resume import Recovery, Settled
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.selection import Selection, SelectionRule, is_published_last, not_carried
from skyplane_gateway.stores import check_destination_key

#: Objects and batches under way at once: enough to keep every window full, few enough
#: that a listing of millions waits in the store and not in memory.
_UNDER_WAY: Final = 64

#: Small objects in one chunk: at most so many, and so many bytes.
BATCH_OBJECTS: Final = 256
BATCH_BYTES: Final = 4 << 20

#: Objects per page when a sink lists the destination.
_PAGE_OBJECTS: Final = 1000


class Work:
    """All objects of one transfer, in the order in which they are moved.

    Args:
        spec: what to copy.
        source: the source.
        sinks: list the destination.
        movers: copy, and enter what became of each object into the report.
        recovery: knows what earlier epochs left.
        report: of the transfer; counts what is found.
    """

    def __init__(
        self,
        spec: TransferSpec,
        *,
        source: SourceCalls,
        sinks: Sinks,
        movers: Movers,
        recovery: Recovery,
        report: Report,
    ) -> None:
        self._spec = spec
        self._sinks = sinks
        self._movers = movers
        self._recovery = recovery
        self._report = report
        self._batch_bytes = min(BATCH_BYTES, spec.chunk_bytes)
        rule = SelectionRule(
            source_prefix=spec.source_prefix,
            destination_prefix=spec.destination_prefix,
            recursive=spec.recursive,
            include=spec.include,
            exclude=spec.exclude,
            conflict=spec.conflict,
        )
        self._listing = Listing(
            rule,
            list_source=partial(source.store.list, wants=rule.wants),
            fetch_page=self._fetch_page,
            check_key=partial(check_destination_key, spec.destination.kind),
            in_thread=source.run,
        )
        #: Whether both listings have been read to their ends.
        self.is_listed = False

    @property
    def looked_at(self) -> int:
        """Objects of the source that the listing has come to, filtered ones included."""
        return self._listing.looked_at

    async def run(self) -> None:
        """Move everything: first all that is ordinary, then what announces it to readers.

        Raises:
            SkyplaneError: the transfer cannot go on.
        """
        with closing(Waiting()) as last:
            await self._move_all(self._first(last))
            if self._report.counters.failed:
                withheld = StoreError("not copied, because objects that it announces have failed")
                async for row in last.rows():
                    self._movers.enter_failed(row, withheld, 0)
            else:
                await self._move_all(self._last(last))

    async def _first(self, last: Waiting) -> AsyncGenerator[Selection, None]:
        """What is to be copied now; fills `last` with what has to wait."""
        async with aclosing(self._selections()) as rows:
            async for row in rows:
                counters = self._report.counters
                counters.found += 1
                counters.found_bytes += row.source.size_bytes
                is_last = is_published_last(row.destination_key, self._spec.publish_last)
                if not is_last:
                    self._movers.keeper.listed(row.destination_key)
                if counters.found == 1:
                    # Who takes over seals this, and so is known to us, before either writes; of
                    # two leads in one epoch the second fails here.
                    await self._movers.keeper.flush()
                try:
                    settled = await self._recovery.settle(row, is_last=is_last)
                except StoreError as error:
                    # What an earlier epoch left of it could not be looked at; others can.
                    self._movers.enter_failed(row, error, 0)
                    continue
                if is_last and not settled.is_left:
                    self._movers.keeper.listed(row.destination_key, is_last=True)
                if self._enter(settled):
                    continue
                if is_last:
                    last.add(settled.row)
                else:
                    yield settled.row

    async def _last(self, waiting: Waiting) -> AsyncGenerator[Selection, None]:
        """What has waited; nobody needs to know of it before its turn."""
        async with aclosing(waiting.rows()) as rows:
            async for row in rows:
                self._movers.keeper.listed(row.destination_key, is_last=True)
                yield row

    def _enter(self, settled: Settled) -> bool:
        """Enter what needs no copying; whether that was all."""
        row = settled.row
        if settled.gone is not None:
            self._movers.keeper.aborted(settled.gone.key, settled.gone.upload_id)
        if settled.is_finished and settled.done is not None:
            self._movers.enter_done(row, settled.done, 0)
        elif settled.is_finished:
            self._movers.enter_ended(row)
        elif row.action == "skip":
            self._movers.enter_skipped(row, row.reason)
        elif row.action == "refuse":
            kind = InvalidKey if row.destination is None else AlreadyExists
            self._movers.enter_failed(row, kind(row.reason), 0)
        elif self._spec.strict_metadata and row.source.not_carried:
            self._movers.enter_failed(row, not_carried(row.source.key, row.source.not_carried), 0)
        else:
            if settled.upload is not None:
                self._movers.go_on(settled)
            return False
        return True

    async def _move_all(self, rows: AsyncGenerator[Selection, None]) -> None:
        """Copy every row, `_UNDER_WAY` movements at a time."""
        room = asyncio.Semaphore(_UNDER_WAY)

        async def start(movement: Coroutine[Any, Any, None]) -> None:
            await room.acquire()
            task = group.create_task(movement)
            task.add_done_callback(lambda _: room.release())

        try:
            # Closed here and now, not whenever what is left of it is collected.
            async with aclosing(rows), asyncio.TaskGroup() as group:
                batch: list[Selection] = []
                batch_bytes = 0
                async for row in rows:
                    size = row.source.size_bytes
                    if size > self._spec.chunk_bytes or self._movers.goes_on(row):
                        await start(self._movers.move_in_parts(row))
                    elif size >= self._batch_bytes:
                        await start(self._movers.move_whole([row]))
                    else:
                        is_full = len(batch) == BATCH_OBJECTS
                        if batch and (is_full or batch_bytes + size > self._batch_bytes):
                            await start(self._movers.move_whole(batch))
                            batch, batch_bytes = [], 0
                        batch.append(row)
                        batch_bytes += size
                if batch:
                    await start(self._movers.move_whole(batch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _selections(self) -> AsyncGenerator[Selection, None]:
        counters = self._report.counters
        async with aclosing(self._listing.selections()) as rows:
            async for row in rows:
                yield row
        counters.reserved = self._listing.reserved
        counters.first_reserved = self._listing.first_reserved
        self.is_listed = True

    async def _fetch_page(
        self, prefix: str, start_after: str | None
    ) -> tuple[list[ObjectInfo], bool]:
        """A page of the destination, through a sink."""
        arguments = {"prefix": prefix, "start_after": start_after, "limit": _PAGE_OBJECTS}
        page, _ = await self._sinks.call("list", arguments)
        return [ObjectInfo.from_dict(row) for row in page["objects"]], bool(page["more"])
