"""Moves what a listing found: many small objects in one chunk, one object, or parts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from skyplane_gateway.checksum import combine
from skyplane_gateway.chunk_orders import RangeOrder, RangeOutcome
from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import (
    ChecksumMismatch,
    NotFound,
    PreconditionFailed,
    ReadBackMismatch,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.journal.document import DoneRow, attributes_digest
from skyplane_gateway.journal.writer import Keeper
from skyplane_gateway.lead.capacity import Room
from skyplane_gateway.lead.delivery import Courier
from skyplane_gateway.lead.multipart import OpenUpload, SourceChanged, Uploads
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.resume import Settled
from skyplane_gateway.lead.resume_rules import IN_DOUBT_S
from skyplane_gateway.lead.retry import MAX_ATTEMPTS
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import IF_ABSENT, ObjectInfo, PartInfo, StoreCapabilities
from skyplane_gateway.selection import Selection, require_carried

log = logging.getLogger(__name__)

#: Parts of all objects that are under way or wait for room at a sink: more than the sinks
#: of any fleet hold, so that no window stays empty.
_PARTS_UNDER_WAY: Final = 1024

#: Parts of all objects that are under way, sent or not: what is known of each is kept until
#: its object is complete.
_PARTS_KNOWN: Final = 1 << 16


class _PartFailed(Exception):
    """A part could not be read or written, and with it its object has failed."""

    def __init__(self, error: SkyplaneError) -> None:
        super().__init__(error.message)
        self.error = error


class Movers:
    """Copies objects of one transfer and enters each into the report.

    The source is pinned to the version that was listed. One that is overwritten meanwhile
    is started over with the version that is there then; overwritten again, it has failed.

    Args:
        source: tells the versions and attributes of objects.
        sinks: run verbs on the destination.
        capabilities: the destination's.
        chunk_bytes: wanted size of a part.
        rng: of the pauses.
        keeps_intents: an object of ours that no journal names would be taken for somebody
            else's by the conflict rule, so the journal names each before it is written.
        strict_metadata: an object of which a copy would lack something fails, and nothing of
            it is written.
        clock: its wall time is compared with what the store says.
    """

    def __init__(
        self,
        *,
        courier: Courier,
        report: Report,
        source: SourceCalls,
        sinks: Sinks,
        capabilities: StoreCapabilities,
        chunk_bytes: int,
        rng: random.Random,
        keeps_intents: bool = False,
        strict_metadata: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._courier = courier
        self._report = report
        self._source = source
        self._capabilities = capabilities
        self._chunk_bytes = chunk_bytes
        self._clock = clock
        self._parts = asyncio.Semaphore(_PARTS_UNDER_WAY)
        self._known_parts = Room(_PARTS_KNOWN)
        self._keeps_intents = keeps_intents
        self._strict_metadata = strict_metadata
        self.uploads = Uploads(sinks, rng, clock)
        #: Destination key -> what an earlier epoch left of an object that goes on.
        self._left: dict[str, Settled] = {}

    @property
    def keeper(self) -> Keeper:
        """Told of everything; the transfer puts its own in once it has one."""
        return self.uploads.keeper

    @keeper.setter
    def keeper(self, keeper: Keeper) -> None:
        self.uploads.keeper = keeper

    def go_on(self, settled: Settled) -> None:
        """When the object's turn comes, take up what an earlier epoch left of it."""
        self._left[settled.row.destination_key] = settled
        if settled.upload is not None:
            self.uploads.inherit([settled.upload])

    def goes_on(self, row: Selection) -> bool:
        """Whether the object is there in parts already, whatever size parts have now."""
        return row.destination_key in self._left

    # -- whole objects

    async def move_whole(self, batch: Sequence[Selection]) -> None:
        """Copy objects that fit into one chunk together, each whole.

        Raises:
            GatewayLost: the transfer cannot go on.
        """
        for row in await self._move_whole(batch):
            await self._start_over(row, SourceChanged())

    async def _move_whole(self, batch: Sequence[Selection]) -> list[Selection]:
        """Copy and enter; returns those whose source has changed, not entered."""
        if self._keeps_intents:
            await self.keeper.flush()
        ranges = tuple(
            RangeOrder(
                source_key=row.source.key,
                etag=row.source.etag,
                offset=0,
                length=row.source.size_bytes,
                destination_key=row.destination_key,
                precondition=row.precondition,
                strict_metadata=self._strict_metadata,
            )
            for row in batch
        )
        outcomes, attempts = await self._courier.deliver("objects", ranges)
        changed = []
        for row, outcome in zip(batch, outcomes, strict=True):
            if outcome.error is None:
                beside = {*row.source.not_carried, *outcome.not_carried}
                self._enter_copied(row, outcome.etag, outcome.crc32c, attempts, beside)
            elif _source_changed(outcome):
                changed.append(row)
            else:
                self.enter_failed(row, outcome.error, attempts)
        return changed

    # -- objects in parts

    async def move_in_parts(self, row: Selection) -> None:
        """Copy one large object as a multipart upload.

        Raises:
            GatewayLost: the transfer cannot go on.
        """
        try:
            async with self._known_parts.taken(self._count_parts(row)):
                await self._move_in_parts(row)
        except SourceChanged as change:
            await self._start_over(row, change)

    def _count_parts(self, row: Selection) -> int:
        return min(-(-row.source.size_bytes // self._chunk_bytes), self._capabilities.max_parts)

    async def _move_in_parts(self, row: Selection) -> None:
        """Copy and enter.

        Raises:
            SourceChanged: nothing is left of the attempt, and nothing was entered.
        """
        left = self._left.pop(row.destination_key, None)
        upload = _upload_of(left)
        try:
            info = await self._source.head(row.source.key)
            if info.etag != row.source.etag or not _may_go_on(left, info):
                raise SourceChanged
            beside = {*row.source.not_carried, *info.not_carried}
            if self._strict_metadata:
                require_carried(row.source.key, beside)
            part_bytes = self._capabilities.part_bytes(row.source.size_bytes, self._chunk_bytes)
            kept: Mapping[int, PartInfo] = {}
            if left is not None and left.upload is not None:
                part_bytes, kept = left.upload.part_bytes, left.parts
            if upload is None:
                upload = await self.uploads.begin(row, info, part_bytes)
            parts, crc32c, attempts = await self._send_parts(row, upload, part_bytes, kept, beside)
            _ensure_read_well(info, crc32c)
            etag = await self.uploads.complete(row, upload, info, parts, crc32c)
        except SourceChanged:
            if upload is not None:
                await self.uploads.abort(upload)
            raise
        except ChecksumMismatch as bad:
            # The store has spoilt a part, perhaps in an earlier epoch.
            if upload is not None:
                await self.uploads.abort(upload)
            raise SourceChanged(bad) from bad
        except (StoreError, _PartFailed) as failure:
            if upload is not None:
                await self.uploads.abort(upload)
            error = failure.error if isinstance(failure, _PartFailed) else failure
            self.enter_failed(row, error, MAX_ATTEMPTS if not error.is_permanent else 1)
        else:
            self._enter_copied(row, etag, crc32c, attempts, beside)

    # -- the source's version

    async def _start_over(self, row: Selection, change: SourceChanged) -> None:
        """Copy the version that is there now from its beginning, once."""
        try:
            fresh = replace(row, source=await self._source.head(row.source.key))
        except StoreError as error:
            self.enter_failed(row, error, 1)
            return
        if isinstance(change.error, ReadBackMismatch):
            # What was bad was removed, and whatever it had replaced is gone with it.
            fresh = replace(fresh, precondition=IF_ABSENT)
        log.info("%r is started over: %s", row.source.key, change.error or "its source changed")
        twice: StoreError = PreconditionFailed(
            f"the source object {row.source.key!r} changed twice while it was copied; "
            "copy it again once nobody writes to it"
        )
        try:
            if fresh.source.size_bytes > self._chunk_bytes:
                async with self._known_parts.taken(self._count_parts(fresh)):
                    await self._move_in_parts(fresh)
                return
            changed = bool(await self._move_whole([fresh]))
        except SourceChanged as failure:
            changed, twice = True, failure.error or twice
        if changed:
            self.enter_failed(fresh, twice, 2)

    async def _send_parts(
        self,
        row: Selection,
        upload: OpenUpload,
        part_bytes: int,
        kept: Mapping[int, PartInfo],
        beside: set[str],
    ) -> tuple[list[PartInfo], int, int]:
        """All parts, the checksum of the whole, and the most sendings that a part took.

        Args:
            kept: parts that are at the destination already.
            beside: takes up what the source's answers tell that a copy will lack.
        """
        size = row.source.size_bytes
        offsets = range(0, size, part_bytes)
        parts, most = list(kept.values()), 0

        async def send(number: int, offset: int) -> None:
            nonlocal most
            length = min(part_bytes, size - offset)
            part, outcome, attempts = await self._send_part(row, upload, number, offset, length)
            parts.append(part)
            beside.update(outcome.not_carried)
            most = max(most, attempts)

        try:
            async with asyncio.TaskGroup() as group:
                for number, offset in enumerate(offsets, start=1):
                    if number in kept:
                        continue
                    # Ten thousand parts wait as a number here, not as a task each.
                    await self._parts.acquire()
                    task = group.create_task(send(number, offset))
                    task.add_done_callback(lambda _: self._parts.release())
        except ExceptionGroup as failures:
            # The first failure cancelled the other parts; it is the one that matters.
            raise failures.exceptions[0] from None
        parts.sort(key=lambda part: part.number)
        whole = 0
        for part in parts:
            whole = combine(whole, part.crc32c or 0, part.size_bytes)
        return parts, whole, most

    async def _send_part(
        self, row: Selection, upload: OpenUpload, number: int, offset: int, length: int
    ) -> tuple[PartInfo, RangeOutcome, int]:
        order = RangeOrder(
            row.source.key,
            row.source.etag,
            offset,
            length,
            row.destination_key,
            strict_metadata=self._strict_metadata,
        )
        outcomes, attempts = await self._courier.deliver(
            "part", (order,), upload_id=upload.upload_id, part_number=number
        )
        outcome: RangeOutcome = outcomes[0]
        if _source_changed(outcome):
            raise SourceChanged
        if isinstance(outcome.error, NotFound) and not outcome.at_source:
            # Somebody has aborted the upload: a rule of the bucket, perhaps.
            raise SourceChanged(outcome.error)
        if outcome.error is not None:
            raise _PartFailed(outcome.error)
        return PartInfo(number, outcome.etag, length, outcome.crc32c), outcome, attempts

    # -- the report

    def _enter_copied(
        self, row: Selection, etag: str, crc32c: int, attempts: int, not_carried: set[str]
    ) -> None:
        done = DoneRow(
            key=row.destination_key,
            etag=etag,
            source_etag=row.source.etag,
            size_bytes=row.source.size_bytes,
            crc32c=crc32c,
            # Twice, since the destination's clock may differ from ours.
            is_fresh=row.source.last_modified + 2 * IN_DOUBT_S > self._clock.wall(),
        )
        self.enter_done(row, done, attempts, not_carried)

    def enter_done(
        self, row: Selection, done: DoneRow, attempts: int, not_carried: Iterable[str] = ()
    ) -> None:
        """The object is at the destination, verified; with no attempt, since earlier."""
        self._report.copied(
            row.source.key,
            row.destination_key,
            row.source.size_bytes,
            done.crc32c,
            attempts,
            source_etag=row.source.etag,
            destination_etag=done.etag,
            not_carried=not_carried,
        )
        self.keeper.committed(done)

    def enter_ended(self, row: Selection) -> None:
        """An earlier epoch copied the object, and its journal says no more than that."""
        self._report.copied(
            row.source.key, row.destination_key, row.source.size_bytes, crc32c=None, attempts=0
        )
        self.keeper.skipped(row.destination_key)

    def enter_skipped(self, row: Selection, reason: str) -> None:
        self._report.skipped(row.source.key, row.destination_key, row.source.size_bytes, reason)
        self.keeper.skipped(row.destination_key)

    def enter_failed(self, row: Selection, error: SkyplaneError, attempts: int) -> None:
        self._report.failed(
            row.source.key, row.destination_key, row.source.size_bytes, error, attempts
        )
        self.keeper.failed(row.destination_key, error.code)


def _upload_of(left: Settled | None) -> OpenUpload | None:
    if left is None or left.upload is None or left.upload.upload_id is None:
        return None
    return OpenUpload(left.upload.key, left.upload.upload_id, "")


def _may_go_on(left: Settled | None, info: ObjectInfo) -> bool:
    """Whether an upload that an earlier epoch began has the attributes of today: they can be
    mended without a new ETag, and an upload keeps those that it was begun with."""
    begun = left.upload.attributes if left is not None and left.upload is not None else None
    return begun in (None, attributes_digest(info.attributes))


def _ensure_read_well(info: ObjectInfo, crc32c: int) -> None:
    """Compare what was read with what the source's store says of the object, if it does.

    Raises:
        SourceChanged: bytes were changed on the way to us.
    """
    if info.crc32c not in (None, crc32c):
        raise SourceChanged(
            ChecksumMismatch(
                f"what was read of {info.key!r} has CRC32C {crc32c:08x}, twice, but its store "
                f"gives {info.crc32c:08x} for it; look at the object before you copy it again"
            )
        )


def _source_changed(outcome: RangeOutcome) -> bool:
    return outcome.at_source and isinstance(outcome.error, PreconditionFailed)
