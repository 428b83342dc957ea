"""A chunk of a group: each transfer has its order in it, and what becomes of one is its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.gateway.source.lab import KEY, Routes, Stuck, source_of
from tests.gateway.transport.lab import until
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, Member, PartEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.limits import MAX_MANIFEST
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder
from skyplane_gateway.source.outcomes import SentChunk
from skyplane_gateway.source.shared_chunk import Orders, SharedChunk

GROUP = bytes([7] * 16)
CHUNK = ChunkId(bytes(8), GROUP, 0, 9, 3, 5)


class Other:
    """Another transfer of the group; it records what it is told."""

    def __init__(self, number: int = 1, *, is_waiting: bool = True) -> None:
        self.transfer, self.epoch = bytes([number] * 16), number
        self.alone: list[ChunkOrder] = []
        self.begun: list[tuple[ChunkId, SentChunk]] = []
        self.failed: list[SkyplaneError] = []
        self._is_waiting = is_waiting

    def awaits(self, order: ChunkOrder) -> bool:
        return self._is_waiting

    def enqueue(self, order: ChunkOrder, shared: SharedChunk | None = None) -> None:
        self.alone.append(order)

    def begin(self, chunk: ChunkId, sending: SentChunk) -> None:
        self.begun.append((chunk, sending))

    def fail(self, order: ChunkOrder, error: SkyplaneError) -> None:
        self.failed.append(error)


def order_of(chunk: int) -> ChunkOrder:
    return ChunkOrder(chunk, 1, 0, "part", (RangeOrder("a", "e", 0, 3, "b"),), "upload", 1)


def test_each_transfer_that_waits_gets_a_receipt_by_its_own_id() -> None:
    manifests: list[ChunkManifest] = []

    def framer_of(chunk: ChunkId, manifest: ChunkManifest, sealing: Sealing) -> ChunkFramer:
        manifests.append(manifest)
        return ChunkFramer(chunk, manifest, sealer=sealing.frames)

    waiting, gone = Other(1), Other(2, is_waiting=False)
    shared = SharedChunk(CHUNK, UNSEALED, [(waiting, order_of(11)), (gone, order_of(12))])
    contents = [
        (source, PartEntry("b", "upload", source.epoch, 0), SentChunk(order_of(chunk)))
        for source, chunk in ((waiting, 11), (gone, 12))
    ]
    framer = shared.begin(3, contents, framer_of)
    assert framer is not None
    assert shared.framer is framer
    assert manifests[0].members == tuple(
        Member(source.transfer.hex(), source.epoch, chunk, 1, PartEntry("b", "upload", number, 0))
        for source, chunk, number in ((waiting, 11, 1), (gone, 12, 2))
    )
    ((chunk, sending),) = waiting.begun
    assert chunk == replace(CHUNK, transfer=waiting.transfer)
    assert sending.framer is framer
    assert gone.begun == []


def test_a_shared_chunk_that_is_given_up_is_ordered_again_by_each() -> None:
    others = [Other(number) for number in range(3)]
    SharedChunk(CHUNK, UNSEALED, [(one, order_of(1)) for one in others]).fail(None)
    errors = [error for one in others for error in one.failed]
    assert [(error.code, error.is_permanent) for error in errors] == [("overloaded", False)] * 3


@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_newer_attempt_of_one_transfer_does_not_end_the_chunk_of_the_others(
    others_wait: bool,
) -> None:
    create_bucket("shared")
    store, routes = MemoryStore(StoreSpec("memory", "shared")), Stuck()
    wanted = RangeOrder("a", store.put("a", bytes(100)).etag, 0, 100, "to/a")
    order = ChunkOrder(1, 1, 0, "objects", (wanted,))
    with ThreadPoolExecutor(2) as threads:
        source = source_of(threads, store, routes, readers=2)
        source._pending[1, 1] = order
        orders: Orders = [(source, order), (Other(is_waiting=others_wait), order)]
        source.enqueue(order, SharedChunk(CHUNK, UNSEALED, orders))
        await routes.is_stuck.wait()
        source.take(ChunkOrder(1, 2, 0, "objects", (wanted,)))
        routes.is_free.set()
        await until(lambda: sum(frame.header.is_last for frame in routes.sent) == 2)
        await source.close()
    of_group = [frame for frame in routes.sent if frame.header.chunk_id.transfer == GROUP]
    assert sum(frame.payload_bytes for frame in of_group) == (100 if others_wait else 20)
    assert of_group[-1].header.is_last


async def test_a_shared_chunk_whose_manifest_is_too_large_is_sent_once_by_each() -> None:
    create_bucket("wordy")
    store, routes = MemoryStore(StoreSpec("memory", "wordy")), Routes()
    words = ObjectAttributes(metadata=(("word", "x" * (MAX_MANIFEST * 2 // 3)),))
    etag = store.put("a", b"abc", attributes=words).etag
    order = ChunkOrder(1, 1, 0, "objects", (RangeOrder("a", etag, 0, 3, "to/a"),))
    other = Other()
    with ThreadPoolExecutor(2) as threads:
        source = source_of(threads, store, routes, readers=2)
        source._pending[1, 1] = order
        source.enqueue(order, SharedChunk(CHUNK, UNSEALED, [(source, order), (other, order)]))
        await until(lambda: bool(routes.sent))
        await source.close()
    assert [frame.header.chunk_id.transfer for frame in routes.sent] == [KEY]
    assert other.alone == [order]
