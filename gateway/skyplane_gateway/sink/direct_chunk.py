"""A chunk that the source of the same gateway reads straight into the sink's memory."""

from __future__ import annotations

from skyplane_gateway.common.buffers import ChunkBuffer
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest


class DirectChunk:
    """Has what `ChunkAssembler` has of a chunk.

    Attributes:
        payload: writable; as long as the manifest says.
        crc32c: of the payload, once it is complete.
    """

    def __init__(self, manifest: ChunkManifest, buffer: ChunkBuffer) -> None:
        self.manifest = manifest
        self.buffer = buffer
        self.payload = memoryview(buffer)[: manifest.length_bytes]
        self.crc32c = 0
        self.is_complete = False

    @property
    def held_bytes(self) -> int:
        return len(self.payload)

    def withdraw(self) -> None:
        """Its own source writes to it, and drops it only afterwards."""
