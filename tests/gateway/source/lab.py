"""A source without a network."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tests.memory_store import MemoryStore

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.transfer import SourceGateway, SourceTransfer
from skyplane_gateway.stores import ObjectStore

KEY = bytes(16)


class Sink:
    """A sink in memory; it writes nothing."""

    def __init__(self) -> None:
        self.memory: dict[int, bytearray] = {}
        self.ended: dict[int, int] = {}
        self.dropped: list[int] = []

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None: ...

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> memoryview | None:
        self.memory[chunk.chunk] = bytearray(manifest.length_bytes)
        return memoryview(self.memory[chunk.chunk])

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None:
        self.ended[chunk.chunk] = crc32c

    def drop_chunk(self, chunk: ChunkId) -> None:
        self.dropped.append(chunk.chunk)


class Routes:
    """One local route, with that sink; nobody takes frames, but `sent` has them."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.sent: list[RawFrame] = []
        self._sink = sink

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        self.sent.append(frame)

    def frame_bytes(self, number: int) -> int:
        return MAX_PAYLOAD_BYTES

    def loss(self, number: int) -> None: ...

    def local_sink(self, number: int) -> Sink | None:
        return self._sink

    def fork(self, number: int) -> None: ...

    def branch(self, number: int) -> None: ...


def source_of(
    threads: ThreadPoolExecutor,
    store: ObjectStore | None = None,
    routes: Routes | None = None,
    bandwidth: Bandwidth | None = None,
    readers: int = 1,
) -> SourceTransfer:
    gateway = SourceGateway(
        node="a",
        fleet=bytes(8),
        routes=routes or Routes(),
        threads=threads,
        readers=readers,
        is_throttled=lambda: False,
        bandwidth=bandwidth or Bandwidth(),
    )
    return SourceTransfer(gateway, KEY, 1, store or MemoryStore(StoreSpec("memory", "any")))


class Stuck(Routes):
    """Takes two frames of the first attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck, self.is_free = asyncio.Event(), asyncio.Event()

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        if len(self.sent) == 2:
            self.is_stuck.set()
            await self.is_free.wait()
        await super().send_frame(frame, turn)

    def frame_bytes(self, number: int) -> int:
        return 10
