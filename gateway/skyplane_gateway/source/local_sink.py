"""What a source asks of the sink of its own gateway."""

from __future__ import annotations

from typing import Protocol

from skyplane_gateway.protocol import ChunkId, ChunkManifest


class LocalSink(Protocol):
    """Takes chunks in the memory of this process; see `Sink`."""

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> memoryview | None: ...

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None: ...

    def drop_chunk(self, chunk: ChunkId) -> None: ...
