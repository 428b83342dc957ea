"""Parts that a sink is writing, or has written, so that a chunk that comes twice is not.

A chunk whose way back is gone (a source, a relay, a lead that died) goes again at once,
and often to the sink that is just writing it. An upload has the same bytes under the same
number for as long as it is open, so what was written answers for what comes again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.protocol import EntryResult, PartEntry, ReceiptStatus

#: A request to the store that takes longer may hang; the part is written by another one.
_WAITED_FOR_S: Final = 10.0

#: Parts that are remembered; the oldest are forgotten, and would be written again.
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Part:
    size_bytes: int
    crc32c: int
    written: asyncio.Future[EntryResult]
    began_s: float

    async def durable(self) -> EntryResult | None:
        """The store's answer once it is there, unless that was a refusal, or takes long."""
        left_s = self.began_s + _WAITED_FOR_S - asyncio.get_running_loop().time()
        await asyncio.wait({self.written}, timeout=max(0.0, left_s))
        if not self.written.done() or self.written.cancelled() or self.written.exception():
            return None
        entry = self.written.result()
        return entry if entry.status is ReceiptStatus.DURABLE else None


class WrittenParts:
    """See the module. One event loop."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[bytes, PartEntry], _Part] = OrderedDict()

    async def write(
        self,
        transfer: bytes,
        place: PartEntry,
        size_bytes: int,
        crc32c: int,
        write: Callable[[], Awaitable[EntryResult]],
    ) -> EntryResult:
        """The store's answer for the part, from `write` or from before.

        Args:
            size_bytes, crc32c: of the part; with others than before it is written.

        Raises:
            Exception: what `write` raises.
        """
        known = self._parts.get((transfer, place))
        if known is not None and (known.size_bytes, known.crc32c) == (size_bytes, crc32c):
            entry = await known.durable()
            if entry is not None:
                return entry
        written = asyncio.ensure_future(write())
        if place.upload_id:
            # Without an id of its own a second upload of the key would look like the first.
            began_s = asyncio.get_running_loop().time()
            self._parts[transfer, place] = _Part(size_bytes, crc32c, written, began_s)
            while len(self._parts) > _REMEMBERED:
                self._parts.popitem(last=False)
        return await written

    def forget_written(self, transfer: bytes) -> None:
        """A new epoch asks the store what is there; from now on only that counts, and what is
        being written."""
        for key, part in tuple(self._parts.items()):
            if key[0] == transfer and part.written.done():
                del self._parts[key]

    def forget(self, transfer: bytes) -> None:
        """The transfer has ended here."""
        for known in [known for known in self._parts if known[0] == transfer]:
            del self._parts[known]
