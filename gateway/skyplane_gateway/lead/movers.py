"""Moves what a listing found: many small objects in one chunk, one object, or parts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.errors import (
    ChecksumMismatch,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.lead.courier import Courier
from skyplane_gateway.lead.pauses import MAX_ATTEMPTS, pause_s
from skyplane_gateway.lead.peers import SinkPeer
from skyplane_gateway.lead.report import Report
from skyplane_gateway.orders import RangeOrder, RangeOutcome
from skyplane_gateway.protocol.checksum import combine
from skyplane_gateway.selection import Selection
from skyplane_gateway.stores.base import ObjectInfo, ObjectStore, PartInfo, StoreCapabilities

log = logging.getLogger(__name__)

#: Parts of all objects that are under way or wait for room at a sink: more than the sinks
#: of any fleet hold, so that no window stays empty.
_PARTS_UNDER_WAY: Final = 1024


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """A multipart upload that this transfer began and has not ended.

    `sink` is the gateway that began it, and the one that would abort it when it ends.
    """

    key: str
    upload_id: str
    sink: str


class Movers:
    """Copies objects of one transfer and enters each into the report.

    Args:
        store: the source, for the attributes of objects that go in parts.
        sinks: gateways that run verbs on the destination; uploads begin at each in turn.
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
        sinks: Sequence[SinkPeer],
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
        self._turn = 0
        self._parts = asyncio.Semaphore(_PARTS_UNDER_WAY)
        self.open_uploads: set[OpenUpload] = set()
        #: Sinks that did not answer; the transfer ends with the first of them.
        self._silent: set[str] = set()
        self.verbs_under_way = 0

    async def move_whole(self, batch: Sequence[Selection]) -> None:
        """Copy objects that fit into one chunk together, each whole.

        Raises:
            GatewayLost: the transfer cannot go on.
        """
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
        for row, outcome in zip(batch, outcomes, strict=True):
            if outcome.error is None:
                self._enter_copied(row, outcome.crc32c, attempts)
            else:
                self.enter_failed(row, outcome.error, attempts)

    async def move_in_parts(self, row: Selection) -> None:
        """Copy one large object as a multipart upload.

        Raises:
            GatewayLost: the transfer cannot go on.
        """
        upload: OpenUpload | None = None
        try:
            info = await self._head(row.source.key)
            upload = await self._begin(row, info)
            parts, crc32c, attempts = await self._send_parts(row, upload)
            await self._complete(row, upload, parts, crc32c)
        except StoreError as error:
            if upload is not None:
                await self.abort(upload)
            self.enter_failed(row, error, MAX_ATTEMPTS if not error.is_permanent else 1)
        else:
            self._enter_copied(row, crc32c, attempts)

    async def _head(self, key: str) -> ObjectInfo:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._store.head, key)

    async def _begin(self, row: Selection, info: ObjectInfo) -> OpenUpload:
        attributes = info.attributes.to_dict() if info.attributes is not None else None
        self._turn += 1
        sink = self._sinks[self._turn % len(self._sinks)]
        answer = await self._on_sink(
            sink, "create", {"key": row.destination_key, "attributes": attributes}
        )
        upload = OpenUpload(row.destination_key, str(answer["upload_id"]), sink.node)
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
        if outcome.error is not None:
            raise outcome.error
        return PartInfo(number, outcome.etag, length, outcome.crc32c), attempts

    async def _complete(
        self, row: Selection, upload: OpenUpload, parts: Sequence[PartInfo], crc32c: int
    ) -> None:
        # Where it was begun, so that this sink stops thinking of it as open.
        sink = next(sink for sink in self._sinks if sink.node == upload.sink)
        answer = await self._on_sink(
            sink,
            "complete",
            {
                "key": upload.key,
                "upload_id": upload.upload_id,
                "parts": [part.to_dict() for part in parts],
                "precondition": row.precondition.to_dict(),
                "size_bytes": row.source.size_bytes,
                "crc32c": crc32c,
            },
        )
        self.open_uploads.discard(upload)
        if int(answer["crc32c"]) != crc32c:
            raise ChecksumMismatch(
                f"{upload.key!r} does not have the bytes that were read at the source"
            )

    async def abort(self, upload: OpenUpload) -> None:
        """Abort an upload at any sink that answers; one that stays open stays listed.

        A sink that did not answer is not asked again: there may be many uploads, and the
        caller of a transfer that has failed waits for the last of them.
        """
        for sink in sorted(self._sinks, key=lambda sink: sink.node != upload.sink):
            if sink.node in self._silent:
                continue
            try:
                await sink.call("abort", {"key": upload.key, "upload_id": upload.upload_id})
            except SkyplaneError as error:
                log.warning("%s could not abort the upload of %r: %s", sink.node, upload.key, error)
                if isinstance(error, GatewayUnreachable):
                    self._silent.add(sink.node)
            else:
                self.open_uploads.discard(upload)
                return

    async def _on_sink(
        self, sink: SinkPeer, verb: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        self.verbs_under_way += 1
        try:
            return await self._patiently(sink, verb, arguments)
        except GatewayUnreachable as error:
            self._silent.add(sink.node)
            raise GatewayLost(f"sink gateway {sink.node} is lost: {error.message}") from error
        finally:
            self.verbs_under_way -= 1

    async def _patiently(
        self, sink: SinkPeer, verb: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """The verb's answer; asked again with pauses, only while it can help."""
        attempt = 1
        while True:
            try:
                return await sink.call(verb, arguments)
            except StoreError as error:
                if error.is_permanent or attempt == MAX_ATTEMPTS:
                    raise
            await asyncio.sleep(pause_s(attempt, self._randomness))
            attempt += 1

    def _enter_copied(self, row: Selection, crc32c: int, attempts: int) -> None:
        self._report.copied(
            row.source.key, row.destination_key, row.source.size_bytes, crc32c, attempts
        )

    def enter_failed(self, row: Selection, error: SkyplaneError, attempts: int) -> None:
        self._report.failed(
            row.source.key, row.destination_key, row.source.size_bytes, error, attempts
        )
