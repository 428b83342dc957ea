"""Moves what a listing found: many small objects in one chunk, one object, or parts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.errors import (
    ChecksumMismatch,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.lead.courier import Courier
from skyplane_gateway.lead.pauses import MAX_ATTEMPTS, patiently
from skyplane_gateway.lead.report import Report
from skyplane_gateway.lead.sinks import Sinks
from skyplane_gateway.orders import RangeOrder, RangeOutcome
from skyplane_gateway.protocol.checksum import combine
from skyplane_gateway.selection import Selection
from skyplane_gateway.stores.base import ObjectInfo, ObjectStore, PartInfo, StoreCapabilities

log = logging.getLogger(__name__)

#: Parts of all objects that are under way or wait for room at a sink: more than the sinks
#: of any fleet hold, so that no window stays empty.
_PARTS_UNDER_WAY: Final = 1024


class _SourceChanged(Exception):
    """The source object is no longer the version that was to be copied."""


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """A multipart upload that this transfer began and has not ended.

    `sink` is the gateway that began it; any other can end it as well.
    """

    key: str
    upload_id: str
    sink: str


class Movers:
    """Copies objects of one transfer and enters each into the report.

    The source is pinned to the version that was listed. One that is overwritten meanwhile
    is started over with the version that is there then; overwritten again, it has failed.

    Args:
        store: the source, for the versions and attributes of objects.
        sinks: run verbs on the destination.
        capabilities: the destination's.
        chunk_bytes: wanted size of a part.
        threads: where the store's blocking calls run.
        randomness: of the pauses.
    """

    def __init__(
        self,
        *,
        courier: Courier,
        report: Report,
        store: ObjectStore,
        sinks: Sinks,
        capabilities: StoreCapabilities,
        chunk_bytes: int,
        threads: Executor,
        randomness: random.Random,
    ) -> None:
        self._courier = courier
        self._report = report
        self._store = store
        self._sinks = sinks
        self._capabilities = capabilities
        self._chunk_bytes = chunk_bytes
        self._threads = threads
        self._randomness = randomness
        self._parts = asyncio.Semaphore(_PARTS_UNDER_WAY)
        self.open_uploads: set[OpenUpload] = set()

    # -- whole objects

    async def move_whole(self, batch: Sequence[Selection]) -> None:
        """Copy objects that fit into one chunk together, each whole.

        Raises:
            GatewayLost: the transfer cannot go on.
        """
        for row in await self._move_whole(batch):
            await self._start_over(row)

    async def _move_whole(self, batch: Sequence[Selection]) -> list[Selection]:
        """Copy and enter; returns those whose source has changed, not entered."""
        ranges = tuple(
            RangeOrder(
                source_key=row.source.key,
                etag=row.source.etag,
                offset=0,
                length=row.source.size_bytes,
                destination_key=row.destination_key,
                precondition=row.precondition,
            )
            for row in batch
        )
        outcomes, attempts = await self._courier.deliver("objects", ranges)
        changed = []
        for row, outcome in zip(batch, outcomes, strict=True):
            if outcome.error is None:
                self._enter_copied(row, outcome.crc32c, attempts)
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
            await self._move_in_parts(row)
        except _SourceChanged:
            await self._start_over(row)

    async def _move_in_parts(self, row: Selection) -> None:
        """Copy and enter.

        Raises:
            _SourceChanged: nothing is left of the attempt, and nothing was entered.
        """
        upload: OpenUpload | None = None
        try:
            info = await self._head(row.source.key)
            if info.etag != row.source.etag:
                raise _SourceChanged
            upload = await self._begin(row, info)
            parts, crc32c, attempts = await self._send_parts(row, upload)
            await self._complete(row, upload, parts, crc32c)
        except _SourceChanged:
            if upload is not None:
                await self.abort(upload)
            raise
        except StoreError as error:
            if upload is not None:
                await self.abort(upload)
            self.enter_failed(row, error, MAX_ATTEMPTS if not error.is_permanent else 1)
        else:
            self._enter_copied(row, crc32c, attempts)

    # -- the source's version

    async def _start_over(self, row: Selection) -> None:
        """Copy the version that is there now, once."""
        try:
            fresh = replace(row, source=await self._head(row.source.key))
        except StoreError as error:
            self.enter_failed(row, error, 1)
            return
        log.info("%r changed while it was copied; it is started over", row.source.key)
        try:
            if fresh.source.size_bytes > self._chunk_bytes:
                await self._move_in_parts(fresh)
                return
            changed = bool(await self._move_whole([fresh]))
        except _SourceChanged:
            changed = True
        if changed:
            twice = PreconditionFailed(
                f"the source object {row.source.key!r} changed twice while it was copied; "
                "copy it again once nobody writes to it"
            )
            self.enter_failed(fresh, twice, 2)

    async def _head(self, key: str) -> ObjectInfo:
        loop = asyncio.get_running_loop()
        return await patiently(
            lambda: loop.run_in_executor(self._threads, self._store.head, key), self._randomness
        )

    # -- uploads

    async def _begin(self, row: Selection, info: ObjectInfo) -> OpenUpload:
        attributes = info.attributes.to_dict() if info.attributes is not None else None
        answer, node = await self._sinks.call(
            "create", {"key": row.destination_key, "attributes": attributes}
        )
        upload = OpenUpload(row.destination_key, str(answer["upload_id"]), node)
        self.open_uploads.add(upload)
        return upload

    async def _send_parts(
        self, row: Selection, upload: OpenUpload
    ) -> tuple[list[PartInfo], int, int]:
        """All parts, the checksum of the whole, and the most sendings that a part took."""
        size = row.source.size_bytes
        part_bytes = self._capabilities.part_bytes(size, self._chunk_bytes)
        offsets = range(0, size, part_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = []
                for number, offset in enumerate(offsets, start=1):
                    # Ten thousand parts wait as a number here, not as a task each.
                    await self._parts.acquire()
                    length = min(part_bytes, size - offset)
                    task = group.create_task(self._send_part(row, upload, number, offset, length))
                    task.add_done_callback(lambda _: self._parts.release())
                    tasks.append(task)
        except ExceptionGroup as failures:
            # The first failure cancelled the other parts; it is the one that matters.
            raise failures.exceptions[0] from None
        parts, whole, most = [], 0, 0
        for task in tasks:
            part, attempts = task.result()
            parts.append(part)
            most = max(most, attempts)
            whole = combine(whole, part.crc32c or 0, part.size_bytes)
        return parts, whole, most

    async def _send_part(
        self, row: Selection, upload: OpenUpload, number: int, offset: int, length: int
    ) -> tuple[PartInfo, int]:
        order = RangeOrder(row.source.key, row.source.etag, offset, length, row.destination_key)
        outcomes, attempts = await self._courier.deliver(
            "part", (order,), upload_id=upload.upload_id, part_number=number
        )
        outcome: RangeOutcome = outcomes[0]
        if _source_changed(outcome):
            raise _SourceChanged
        if outcome.error is not None:
            raise outcome.error
        return PartInfo(number, outcome.etag, length, outcome.crc32c), attempts

    async def _complete(
        self, row: Selection, upload: OpenUpload, parts: Sequence[PartInfo], crc32c: int
    ) -> None:
        answer, _ = await self._sinks.call(
            "complete",
            {
                "key": upload.key,
                "upload_id": upload.upload_id,
                "parts": [part.to_dict() for part in parts],
                "precondition": row.precondition.to_dict(),
                "size_bytes": row.source.size_bytes,
                "crc32c": crc32c,
            },
            prefer=upload.sink,
        )
        self.open_uploads.discard(upload)
        if int(answer["crc32c"]) != crc32c:
            raise ChecksumMismatch(
                f"{upload.key!r} does not have the bytes that were read at the source"
            )

    async def abort(self, upload: OpenUpload) -> None:
        """Abort an upload at any sink that answers; one that stays open stays listed."""
        arguments = {"key": upload.key, "upload_id": upload.upload_id}
        if await self._sinks.call_once("abort", arguments, prefer=upload.sink):
            self.open_uploads.discard(upload)

    async def abort_all(self) -> None:
        """Abort what is still open, and what may have begun without our knowing.

        To be called once nothing is under way any more.
        """
        for upload in tuple(self.open_uploads):
            await self.abort(upload)
        for key in tuple(self._sinks.doubtful_keys):
            # Without an id, all uploads of the key.
            if await self._sinks.call_once("abort", {"key": key, "upload_id": None}):
                self._sinks.doubtful_keys.discard(key)

    # -- the report

    def _enter_copied(self, row: Selection, crc32c: int, attempts: int) -> None:
        self._report.copied(
            row.source.key,
            row.destination_key,
            row.source.size_bytes,
            crc32c,
            attempts,
            source_etag=row.source.etag,
        )

    def enter_failed(self, row: Selection, error: SkyplaneError, attempts: int) -> None:
        self._report.failed(
            row.source.key, row.destination_key, row.source.size_bytes, error, attempts
        )


def _source_changed(outcome: RangeOutcome) -> bool:
    return outcome.at_source and isinstance(outcome.error, PreconditionFailed)
