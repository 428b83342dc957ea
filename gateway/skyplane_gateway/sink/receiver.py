"""The sink: assembles chunks, writes them to the destination, and sends receipts.

It holds at most `capacity_bytes` of payload. A correct lead never sends more; a chunk beyond
the limit is refused, and sent again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from skyplane_gateway.common.buffers import BufferPool, ChunkBuffer
from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    GatewayDraining,
    GatewayLost,
    InternalError,
    Overloaded,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.chunk_manifest import (
    ChunkManifest,
    ObjectEntry,
    PartEntry,
    objects_of,
)
from skyplane_gateway.protocol.errors import FrameAltered, FrameCorrupt, ProtocolError
from skyplane_gateway.protocol.frames import Claim, OpenedFrame, begin_frame, end_frame, open_frame
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.receipt import EntryResult, RawReceipt, Receipt, seal_receipt
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.sink.direct_chunk import DirectChunk
from skyplane_gateway.sink.part_cache import WrittenParts
from skyplane_gateway.stores.body_blocks import noting_sent
from skyplane_gateway.transport.log_throttle import LogThrottle

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Ended chunks that are remembered: their late frames are dropped without a receipt.
_REMEMBERED: Final = 4096

_FULL: Final = "this sink holds as many chunks as it can"


@dataclass(slots=True)
class SinkTransfer:
    """A transfer as one sink knows it; epochs only rise, and older ones are refused.

    Attributes:
        is_used: a lead has sent a verb or a chunk in this epoch.
    """

    epoch: int
    destination: Destination
    sealing: Sealing = UNSEALED
    is_used: bool = False


class Sink:
    """Receives the frames of all transfers at one gateway.

    Args:
        capacity_bytes: most payload in memory.
        send_receipt: sends a receipt up its route.
        threads: where the store's blocking calls run.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int,
        send_receipt: Callable[[RawReceipt], None],
        threads: Executor,
        node: str = "",
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self._send_receipt = send_receipt
        self._threads = threads
        self._node = node
        self._transfers: dict[bytes, SinkTransfer] = {}
        #: Group -> the transfer of it that has its sink here, and what opens the group's frames.
        self._groups: dict[bytes, tuple[bytes, Sealing]] = {}
        self._assemblers: dict[ChunkId, ChunkAssembler | DirectChunk] = {}
        self._buffers = BufferPool()
        self._ended: OrderedDict[ChunkId, None] = OrderedDict()
        #: Writes in flight: the chunk on the wire and as its lead knows it, and when it was
        #: complete, by the loop's clock.
        self._writes: dict[asyncio.Task[None], tuple[ChunkId, ChunkId, float]] = {}
        #: Chunk that is being written -> object or part of it -> bytes that were sent.
        self._sent: dict[ChunkId, dict[str, int]] = {}
        self._parts = WrittenParts()
        #: Why new chunks are refused; None while they are taken.
        self._refusal: GatewayDraining | None = None
        self._corrupt_log = LogThrottle()
        self.held_bytes = 0

    # -- transfers

    def attach(self, transfer: bytes, state: SinkTransfer) -> None:
        self._transfers[transfer] = state
        self._parts.forget_written(transfer)
        for chunk, assembler in tuple(self._assemblers.items()):
            is_former = chunk.transfer in self._groups or chunk.epoch < state.epoch
            if self._own(chunk).transfer == transfer and is_former and not assembler.is_complete:
                self._end(chunk)  # No rest comes from the source of an earlier epoch.

    def attach_group(self, group: bytes, transfer: bytes, sealing: Sealing) -> None:
        """Take chunks of a group for its member here; after `attach`."""
        self._groups[group] = transfer, sealing

    def _own(self, chunk: ChunkId) -> ChunkId:
        """The chunk with the transfer of this sink, where it is of a group."""
        member = self._groups.get(chunk.transfer)
        return chunk if member is None else replace(chunk, transfer=member[0])

    async def detach(self, transfer: bytes) -> None:
        """Forget a transfer; returns when its writes have ended."""
        self._transfers.pop(transfer, None)
        writes = [task for task, row in self._writes.items() if row[1].transfer == transfer]
        if writes:
            await asyncio.wait(writes)
        for chunk in [chunk for chunk in self._assemblers if self._own(chunk).transfer == transfer]:
            self.drop_chunk(chunk)
        self._groups = {key: row for key, row in self._groups.items() if row[0] != transfer}
        self._parts.forget(transfer)
        if not self._transfers:
            self._buffers.clear()
        # The next lead may count its chunks from one again.
        for chunk in [chunk for chunk in self._ended if chunk.transfer == transfer]:
            del self._ended[chunk]

    def chunks(self, transfer: bytes, epoch: int, for_s: float) -> list[tuple[int, ...]]:
        """The fields of a `ChunkState` for each chunk that is complete and not written.

        After `for_s` seconds they wait for the store.
        """
        until_s = asyncio.get_running_loop().time() - for_s
        return [
            (
                known.chunk,
                known.attempt,
                # Threads add to it.
                sum(tuple(self._sent.get(chunk, {}).values())),
                since_s <= until_s,
            )
            for chunk, known, since_s in self._writes.values()
            if (known.transfer, known.epoch) == (transfer, epoch)
        ]

    def route_is_down(self, number: int) -> None:
        """Forget the incomplete chunks of that route: the rest of their frames is lost."""
        for chunk, assembler in tuple(self._assemblers.items()):
            if chunk.route == number and not assembler.is_complete:
                self._end(chunk)

    # -- frames

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        """Take one frame; an error is reported by a receipt."""
        self._take(header.chunk_id, partial(self._add, header, sealed))

    def claim_frame(
        self, header: FrameHeader, start: memoryview, sealed_bytes: int
    ) -> Claim | None:
        """A place for the payload of a plain frame that begins so; None where it needs `on_frame`.

        Says nothing of errors: `on_frame` meets them once the frame is whole.
        """
        chunk = header.chunk_id
        transfer, known = self._transfers.get(chunk.transfer), self._assemblers.get(chunk)
        if transfer is None or transfer.sealing is not UNSEALED or chunk.epoch < transfer.epoch:
            return None
        is_taken = isinstance(known, DirectChunk) or (known is not None and known.is_complete)
        if is_taken or self._refusal is not None or chunk in self._ended:
            return None
        head = begin_frame(header, start, sealed_bytes)
        if head is None:
            return None
        with suppress(Overloaded):
            return self._assembler(head).claim(head)
        return None

    def on_placed(self, claim: Claim, tag: memoryview) -> None:
        """Take a frame whose payload has arrived at its place."""
        head = claim.frame
        self._take(head.header.chunk_id, lambda _: self._assembler(head).add(end_frame(claim, tag)))

    def _take(self, chunk: ChunkId, add: Callable[[Sealing], bool]) -> None:
        """Take a frame of a chunk by `add`, which returns whether it completes the chunk."""
        known = self._assemblers.get(chunk)
        if chunk in self._ended or (known is not None and known.is_complete):
            return  # A forged frame must not end a chunk that is being written.
        transfer = self._admit(chunk)
        if transfer is None:
            return
        _, sealing = self._groups.get(chunk.transfer, (b"", transfer.sealing))
        try:
            completes = add(sealing)
        except FrameCorrupt as error:
            suffix = self._corrupt_log.suffix(asyncio.get_running_loop().time())
            if suffix is not None:
                log.warning("%s%s", error, suffix)
            # Another path, if there is one, may not alter frames.
            is_path_bad = isinstance(error, FrameAltered)
            kind = GatewayLost if is_path_bad else ChecksumMismatch
            self._refuse(chunk, transfer.epoch, kind(error.message))
        except (ProtocolError, Overloaded) as error:
            self._refuse(chunk, transfer.epoch, error)
        else:
            transfer.is_used = True
            if completes:
                self._begin_write(chunk, transfer)

    def _admit(self, chunk: ChunkId) -> SinkTransfer | None:
        """The transfer of a chunk; None, with a receipt, where the chunk is refused."""
        transfer = self._transfers.get(self._own(chunk).transfer)
        if transfer is None:
            self._refuse(chunk, 0, UnknownTransfer("this sink has no such transfer"))
            return None
        if chunk.transfer not in self._groups and self._refuse_stale(chunk, chunk.epoch, transfer):
            return None
        if self._refusal is not None:
            self._refuse(chunk, transfer.epoch, self._refusal)
            return None
        return transfer

    def _refuse_stale(self, chunk: ChunkId, epoch: int, transfer: SinkTransfer) -> bool:
        """Refuse a chunk of an epoch that is over; whether it is."""
        if epoch >= transfer.epoch:
            return False
        message = f"epoch {epoch} is over, {transfer.epoch} is in charge"
        self._refuse(chunk, transfer.epoch, StaleEpoch(message))
        return True

    # -- chunks from the source of this gateway

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> memoryview | None:
        """Memory for the payload of a chunk; None, with a receipt, where it is refused.

        `end_chunk` or `drop_chunk` must follow.
        """
        transfer = self._admit(chunk)
        if transfer is None:
            return None
        transfer.is_used = True
        try:
            direct = DirectChunk(manifest, self._reserve(chunk, manifest.length_bytes))
        except Overloaded as error:
            self._refuse(chunk, transfer.epoch, error)
            return None
        self._assemblers[chunk] = direct
        return direct.payload

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None:
        """Write the chunk: its payload is complete and has that checksum."""
        direct = self._assemblers.get(chunk)
        transfer = self._transfers.get(chunk.transfer)
        if isinstance(direct, DirectChunk) and transfer is not None:
            direct.crc32c, direct.is_complete = crc32c, True
            self._begin_write(chunk, transfer)

    def _begin_write(self, chunk: ChunkId, transfer: SinkTransfer) -> None:
        assembler = self._assemblers[chunk]
        manifest, known = assembler.manifest, self._own(chunk)
        if manifest is not None and chunk.transfer in self._groups:
            member = manifest.of_member(known.transfer)
            if member is None:
                self._end(chunk)
                return
            if self._refuse_stale(chunk, member.epoch, transfer):
                return
            known = replace(known, epoch=member.epoch, chunk=member.chunk, attempt=member.attempt)
            manifest = ChunkManifest(manifest.length_bytes, member.content)
        if manifest is None:
            return
        task = asyncio.create_task(self._write(chunk, known, assembler, manifest, transfer))
        self._writes[task] = chunk, known, asyncio.get_running_loop().time()
        task.add_done_callback(self._writes.pop)

    def _reserve(self, chunk: ChunkId, length: int) -> ChunkBuffer:
        """Memory for a new chunk; raises Overloaded where there is no room."""
        # No source waits for earlier attempts at the chunk, and frames may come late.
        for other, assembler in tuple(self._assemblers.items()):
            is_same = (other.transfer, other.chunk) == (chunk.transfer, chunk.chunk)
            is_older = (other.epoch, other.attempt) < (chunk.epoch, chunk.attempt)
            if is_same and is_older and not assembler.is_complete:
                self._end(other)
        room = self.capacity_bytes - self.held_bytes - length
        if room < 0:
            raise Overloaded(_FULL)
        buffer = self._buffers.take(length, keep_bytes=room)
        self.held_bytes += length
        return buffer

    def hand_back(self, refusal: GatewayDraining) -> None:
        """Refuse new and incomplete chunks, so that sources send them elsewhere at once."""
        self._refusal = refusal
        for chunk in [c for c, assembler in self._assemblers.items() if not assembler.is_complete]:
            transfer = self._transfers.get(self._own(chunk).transfer)
            self._refuse(chunk, 0 if transfer is None else transfer.epoch, refusal)

    def _add(self, header: FrameHeader, sealed: memoryview, sealing: Sealing) -> bool:
        """Returns whether this frame, of a chunk that is not complete, completes it."""
        known = self._assemblers.get(header.chunk_id)

        def place(head: OpenedFrame) -> memoryview | None:
            claim = known.claim(head) if isinstance(known, ChunkAssembler) else None
            return None if claim is None else claim.view

        # First, because a forged frame must change nothing here but end its chunk.
        frame = open_frame(header, sealed, sealing.frames, place)
        return self._assembler(frame).add(frame)

    def _assembler(self, frame: OpenedFrame) -> ChunkAssembler:
        """That of the frame's chunk; raises Overloaded where a new one finds no room."""
        chunk = frame.header.chunk_id
        known = self._assemblers.get(chunk)
        if isinstance(known, ChunkAssembler):
            return known
        length = frame.chunk_bytes
        made = ChunkAssembler(chunk, length, self._reserve(chunk, length))
        self._assemblers[chunk] = made
        return made

    async def _write(
        self,
        chunk: ChunkId,
        known: ChunkId,
        assembler: ChunkAssembler | DirectChunk,
        manifest: ChunkManifest,
        transfer: SinkTransfer,
    ) -> None:
        """Write a chunk; `known`: as its lead knows it, `manifest`: its own part of the chunk's."""
        loop = asyncio.get_running_loop()
        sent = self._sent[chunk] = {}
        writes: list[Awaitable[EntryResult]]
        if isinstance(manifest.content, PartEntry):
            payload, crc32c = assembler.payload, assembler.crc32c
            keys = [manifest.content.key]
            write = partial(
                loop.run_in_executor,
                self._threads,
                _noted,
                partial(sent.__setitem__, manifest.content.key),
                _write_part,
                transfer.destination,
                manifest.content,
                payload,
                crc32c,
            )
            writes = [
                self._parts.write(known.transfer, manifest.content, len(payload), crc32c, write)
            ]
        else:
            keys = [entry.key for entry in manifest.content]
            # The checksum of one object is that of its chunk.
            whole = assembler.crc32c if len(keys) == 1 else None
            writes = [
                self._write_object(
                    transfer.destination,
                    entry,
                    payload,
                    whole,
                    partial(sent.__setitem__, entry.key),
                    is_sent_again=known.attempt > 1,
                )
                for entry, payload in objects_of(manifest, assembler.payload)
            ]
        entries = tuple(
            row if isinstance(row, EntryResult) else self._unexpected(row, key)
            for key, row in zip(
                keys, await asyncio.gather(*writes, return_exceptions=True), strict=True
            )
        )
        self._end(chunk)
        # No write is left that could still read it.
        self._buffers.give(assembler.buffer)
        self._answer(chunk, Receipt(transfer.epoch, entries=entries))

    async def _write_object(
        self,
        destination: Destination,
        entry: ObjectEntry,
        payload: memoryview,
        crc32c: int | None,
        note: Callable[[int], None],
        *,
        is_sent_again: bool,
    ) -> EntryResult:
        crc32c = checksum(payload) if crc32c is None else crc32c
        about = crc32c, entry.attributes, entry.precondition
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)
        info: ObjectInfo | None = None
        try:
            if is_sent_again:
                # Another sink may have written it, whose receipt for the whole chunk is lost.
                size_bytes = len(payload)
                info = await in_thread(destination.find_landed, entry.key, size_bytes, *about)
            if info is None:
                info = await destination.try_put(entry.key, payload, *about)
            if info is None:
                put = partial(_noted, note, destination.put)
                info = await in_thread(put, entry.key, payload, *about)
            note(len(payload))
        except SkyplaneError as error:
            return EntryResult(error.to_dict())
        return EntryResult(None, info.etag, crc32c)

    # -- answers

    def _unexpected(self, error: BaseException, key: str) -> EntryResult:
        """The result of an unexpected error: the source waits for a receipt."""
        log.error("%r was not written", key, exc_info=error)
        where = f"the sink gateway {self._node}"
        return EntryResult(InternalError.of(error, f"writing {key!r}", where).to_dict())

    def _refuse(self, chunk: ChunkId, epoch: int, error: SkyplaneError) -> None:
        self._end(chunk)
        self._answer(chunk, Receipt(epoch, error.to_dict()))

    def _answer(self, chunk: ChunkId, receipt: Receipt) -> None:
        own = self._own(chunk)
        transfer = self._transfers.get(own.transfer)
        sealing = UNSEALED if transfer is None else transfer.sealing
        self._send_receipt(seal_receipt(own, receipt, sealing.receipts))

    def _end(self, chunk: ChunkId) -> None:
        self.drop_chunk(chunk)
        self._ended[chunk] = None
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def drop_chunk(self, chunk: ChunkId) -> None:
        """Forget a chunk, as one that its source cannot complete."""
        self._sent.pop(chunk, None)
        assembler = self._assemblers.pop(chunk, None)
        if assembler is not None:
            assembler.withdraw()
            self.held_bytes -= assembler.held_bytes

    async def drain(self) -> None:
        """Wait until nothing is being written."""
        while self._writes:
            await asyncio.wait(tuple(self._writes))


def _noted(note: Callable[[int], None], write: Callable[..., T], *arguments: object) -> T:
    """Run a write in this thread; `note` is told how many bytes of it were sent."""
    with noting_sent(note):
        return write(*arguments)


def _write_part(
    destination: Destination, entry: PartEntry, payload: memoryview, crc32c: int
) -> EntryResult:
    try:
        part = destination.put_part(
            entry.key, entry.upload_id, entry.number, payload, entry.offset, crc32c
        )
    except SkyplaneError as error:
        return EntryResult(error.to_dict())
    return EntryResult(None, part.etag, crc32c)
