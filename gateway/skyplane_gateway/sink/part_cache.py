"""Remembers the parts that a sink writes or has written, so that none is written twice.

When a receipt cannot return (a source, relay or lead has died), the chunk is sent again, often
to the sink that is writing it. A part number of an open upload always has the same bytes, so
the result of the first write serves for the second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.protocol.chunk_manifest import PartEntry
from skyplane_gateway.protocol.receipt import EntryResult

#: A request that takes longer may hang: the part is written again.
_WRITE_TIMEOUT_S: Final = 10.0

#: Parts that are remembered, the newest.
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Part:
    size_bytes: int
    crc32c: int
    written: asyncio.Future[EntryResult]
    began_s: float

    async def durable(self) -> EntryResult | None:
        """The result of the write; None where it failed or takes too long."""
        left_s = self.began_s + _WRITE_TIMEOUT_S - asyncio.get_running_loop().time()
        await asyncio.wait({self.written}, timeout=max(0.0, left_s))
        if not self.written.done() or self.written.cancelled() or self.written.exception():
            return None
        entry = self.written.result()
        return entry if entry.error is None else None


class WrittenParts:
    """See the module."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[bytes, PartEntry], _Part] = OrderedDict()

    async def write(
        self,
        transfer: bytes,
        part: PartEntry,
        size_bytes: int,
        crc32c: int,
        write: Callable[[], Awaitable[EntryResult]],
    ) -> EntryResult:
        """The result of `write`, or of an earlier write of the same part with the same bytes."""
        known = self._parts.get((transfer, part))
        if known is not None and (known.size_bytes, known.crc32c) == (size_bytes, crc32c):
            entry = await known.durable()
            if entry is not None:
                return entry
        written = asyncio.ensure_future(write())
        if part.upload_id:
            # Without an upload id two uploads of one key cannot be told apart.
            began_s = asyncio.get_running_loop().time()
            self._parts[transfer, part] = _Part(size_bytes, crc32c, written, began_s)
            while len(self._parts) > _REMEMBERED:
                self._parts.popitem(last=False)
        return await written

    def forget_written(self, transfer: bytes) -> None:
        """Forget finished writes: a new epoch lists the parts that the store has."""
        for key, part in tuple(self._parts.items()):
            if key[0] == transfer and part.written.done():
                del self._parts[key]

    def forget(self, transfer: bytes) -> None:
        """The transfer has ended here."""
        for known in [known for known in self._parts if known[0] == transfer]:
            del self._parts[known]
