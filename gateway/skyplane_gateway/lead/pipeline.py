"""Moves all objects of a transfer: lists both ends, resumes each object, hands it to the copier."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any, Final

from skyplane_gateway.common.errors import NotFound, StoreError
from skyplane_gateway.common.schema import decode, encode
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.both_ends import BothEnds
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.copier import Copier
from skyplane_gateway.lead.listing_diff import ListingDiff
from skyplane_gateway.lead.multipart import MultipartCopier
from skyplane_gateway.lead.recorder import Recorder
from skyplane_gateway.lead.resume import Resumed, Resumer
from skyplane_gateway.lead.turns import Turns
from skyplane_gateway.protocol.limits import MAX_ENTRIES
from skyplane_gateway.selection.candidates import Candidate
from skyplane_gateway.selection.metadata_check import metadata_not_carried
from skyplane_gateway.selection.publish_order import is_published_last
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import Selection

#: Large objects and batches in flight: enough to fill every window, and few enough that a
#: listing of millions waits in the store and not in memory.
_IN_FLIGHT: Final = 64

#: Limits of a batch of small objects, which share a chunk. With larger ones, the sink waits for the
#: first batch, and the source for the last.
BATCH_OBJECTS: Final = MAX_ENTRIES
BATCH_BYTES: Final = 4 << 20

#: Deferred objects beyond this go to an unnamed temporary file: there may be any number of them.
_IN_MEMORY_BYTES: Final = 1 << 20

#: Deferred objects that are read before other tasks run.
_STEP_ROWS: Final = 256


class DeferredObjects:
    """Objects that are copied last because they announce others, in the order of their additions.

    The object that each replaces is not kept: the precondition is enough.
    """

    def __init__(self) -> None:
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def add(self, row: Selection) -> None:
        """Add an object; only before `rows` is called."""
        document = encode(replace(row, destination=None))
        self._rows.write(json.dumps(document).encode() + b"\n")

    async def rows(self) -> AsyncGenerator[Selection, None]:
        """All objects; lets other tasks run meanwhile."""
        for number, row in enumerate(self._read()):
            if number % _STEP_ROWS == 0:
                await asyncio.sleep(0)
            yield row

    def _read(self) -> Iterator[Selection]:
        self._rows.seek(0)
        for line in self._rows:
            yield decode(Selection, json.loads(line), "a deferred object")

    def close(self) -> None:
        self._rows.close()


class Pipeline:
    """All objects of one transfer, in the order in which they are copied.

    Args:
        began_unix_s: when the first epoch began; durations of filters count back from it.
    """

    def __init__(
        self,
        context: TransferContext,
        journal: JournalWriter,
        resumer: Resumer,
        multipart: MultipartCopier,
        *,
        began_unix_s: float,
    ) -> None:
        spec = self._spec = context.spec
        self._counters = context.report.counters
        self._journal = journal
        #: Key of the object that the journal names since before the destination was listed.
        self._first: str | None = None
        self._resumer = resumer
        self._multipart = multipart
        self._recorder = Recorder(
            context.report,
            journal.state,
            context.clock,
            source_kind=spec.source.kind,
            destination_kind=spec.destination.kind,
        )
        self._copier = Copier(context, journal, multipart, self._recorder)
        self._batch_bytes = min(BATCH_BYTES, spec.chunk_bytes)
        rule = SelectionRule.of(spec, began_unix_s)
        self._has_turns = context.delivery.may_share
        self._diff = ListingDiff(context, rule, BothEnds(context), self._begin_journal)

    async def run(self) -> None:
        """Copy everything: ordinary objects first, then the objects that announce them."""
        with closing(DeferredObjects()) as deferred:
            await self._copy_all(self._ordinary(deferred))
            if self._counters.failed:
                withheld = StoreError("not copied, because objects that it announces have failed")
                async for row in deferred.rows():
                    self._recorder.failed(row, withheld)
            else:
                await self._copy_all(self._announcing(deferred))

    async def _ordinary(self, deferred: DeferredObjects) -> AsyncGenerator[Selection, None]:
        """Objects to copy now; adds those that are published last to `deferred`."""
        journal = self._journal.state
        async with aclosing(self._diff.selections()) as rows:
            async for row in rows:
                if row.action == "missing" and journal.is_complete:
                    continue  # An earlier epoch has copied it, and a move has deleted it since.
                self._counters.found += 1
                self._counters.found_bytes += row.source.size_bytes
                self._counters.digest.add(row.source)
                is_last = self._is_last(row.destination_key)
                is_apart = is_last or row.is_escaped
                if not is_apart and row.destination_key != self._first:
                    journal.listed(row.destination_key)
                if self._counters.found == 1:
                    # A journal must exist before any object is written: a newer lead seals it.
                    # Of two leads of one epoch, the second one fails here.
                    await self._journal.flush()
                try:
                    resumed = await self._resumer.resume(row, is_last=is_apart)
                except StoreError as error:
                    # The state of this object is unknown; other objects can be copied.
                    self._recorder.failed(row, error)
                    continue
                if is_apart and not (is_last and resumed.is_left):
                    journal.listed(row.destination_key, is_last=True)
                if self._record(resumed):
                    continue
                if is_last:
                    deferred.add(resumed.row)
                else:
                    yield resumed.row
        self._counters.is_listed = True

    def _begin_journal(self, first: Candidate) -> None:
        """Write the journal while the destination is listed; the first object waits for it."""
        # The journal relies on the order of keys, which escaped keys break.
        if not (self._is_last(first.key) or first.is_escaped):
            self._first = first.key
            self._journal.state.listed(first.key)
        self._journal.write_soon()

    def _is_last(self, key: str) -> bool:
        return is_published_last(key, self._spec.publish_last, self._spec.destination_prefix)

    async def _announcing(self, deferred: DeferredObjects) -> AsyncGenerator[Selection, None]:
        """Deferred objects; the journal names each only when its turn comes."""
        async with aclosing(deferred.rows()) as rows:
            async for row in rows:
                self._journal.state.listed(row.destination_key, is_last=True)
                yield row

    def _record(self, resumed: Resumed) -> bool:
        """Record an object that needs no copy; False where it needs one."""
        row = resumed.row
        if resumed.gone is not None:
            self._journal.state.upload_aborted(resumed.gone.key, resumed.gone.upload_id)
        if resumed.is_finished and resumed.upload is not None:
            self._journal.state.upload_left(row.destination_key)
            self._multipart.uploads.take_over([resumed.upload])
        if resumed.is_finished and resumed.done is not None:
            self._recorder.done(row, resumed.done)
        elif resumed.is_finished:
            self._recorder.ended_earlier(row)
        elif row.action == "skip":
            self._recorder.skipped(row)
        elif row.action == "missing":
            self._recorder.failed(row, NotFound(row.reason))
        elif row.action == "refuse":
            self._recorder.failed(row, (row.refusal or StoreError)(row.reason))
        elif self._spec.strict_metadata and row.source.not_carried:
            self._recorder.failed(row, metadata_not_carried(row.source.key, row.source.not_carried))
        else:
            if resumed.upload is not None:
                self._multipart.resume_later(resumed)
            return False
        return True

    async def _copy_all(self, rows: AsyncGenerator[Selection, None]) -> None:
        """Copy every row, `_IN_FLIGHT` at a time."""
        slots = asyncio.Semaphore(_IN_FLIGHT)
        turns = Turns() if self._has_turns else None

        async def start(copy: Coroutine[Any, Any, None]) -> None:
            await slots.acquire()
            task = group.create_task(copy if turns is None else turns.run(copy))
            task.add_done_callback(lambda _: slots.release())

        try:
            # `aclosing` ends the listings here, not when the generator is collected.
            async with aclosing(rows), asyncio.TaskGroup() as group:
                batch: list[Selection] = []
                batch_bytes = 0
                async for row in rows:
                    size = row.source.size_bytes
                    if self._multipart.takes(row):
                        await start(self._copier.copy_in_parts(row))
                    elif size >= self._batch_bytes:
                        await start(self._copier.copy_whole([row]))
                    else:
                        is_full = len(batch) == BATCH_OBJECTS
                        if batch and (is_full or batch_bytes + size > self._batch_bytes):
                            await start(self._copier.copy_whole(batch))
                            batch, batch_bytes = [], 0
                        batch.append(row)
                        batch_bytes += size
                if batch:
                    await start(self._copier.copy_whole(batch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
