"""Traffic that measures what a route carries.

The source sends chunks of the transfer `PROBE_TRANSFER` over the route's connections, as a
transfer would. The sink discards them and sends a receipt for each, and the source counts the
receipts. So bytes that only fill buffers on the way do not count. No store takes part.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.errors import ConfigurationInvalid, Overloaded
from skyplane_gateway.config import ProbeReport
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, ObjectEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.limits import PROBE_TRANSFER
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import RawReceipt, Receipt, seal_receipt

#: Bounds of the payload of a chunk. Small ones give a slow route enough receipts to count; large
#: ones cost a fast one little.
_LEAST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = MAX_PAYLOAD_BYTES - (4 << 10)
#: A chunk has this share of what has arrived before it.
_SHARE: Final = 256

#: Seconds for which a probe may send.
_LEAST_S: Final = 0.1
_MOST_S: Final = 60.0
#: The share of that time that does not count: connections first find their rate.
_START: Final = 0.4


@dataclass(slots=True)
class _Sending:
    """A probe under way: the chunks without a receipt, and what arrived with one."""

    unanswered: dict[int, int]
    arrived_bytes: int = 0
    sent_bytes: int = 0


class Probes:
    """The probes that begin at a gateway, and those that end there.

    Args:
        fleet: its id on the wire.
        send_frame, send_receipt: of the router.
    """

    def __init__(
        self,
        fleet: bytes,
        send_frame: Callable[[RawFrame], Awaitable[None]],
        send_receipt: Callable[[RawReceipt], None],
    ) -> None:
        self._fleet = fleet
        self._send_frame = send_frame
        self._send_receipt = send_receipt
        self._sendings: dict[int, _Sending] = {}
        #: Payload of all chunks: what compresses would travel faster on some lines.
        self._payload = b""
        self._chunks = 0

    async def measure(self, route: int, connections: int, seconds: float) -> ProbeReport:
        """Send for so many seconds; other routes of the same gateways may carry traffic.

        Raises:
            ConfigurationInvalid: for a time that is too short or too long.
            Overloaded: a probe of the route is under way.
            GatewayLost: the route is down.
        """
        if not _LEAST_S <= seconds <= _MOST_S:
            raise ConfigurationInvalid(
                f"a probe sends for {_LEAST_S:g} to {_MOST_S:g} seconds, not {seconds!r}"
            )
        if route in self._sendings:
            raise Overloaded(f"a probe of route {route} is under way")
        self._payload = self._payload or os.urandom(_MOST_BYTES)
        sending = self._sendings[route] = _Sending({})
        time_s = asyncio.get_running_loop().time
        try:
            begin_s = time_s()
            await self._send(route, sending, begin_s + _START * seconds)
            counted_s, before_bytes = time_s(), sending.arrived_bytes
            await self._send(route, sending, begin_s + seconds)
            steady_s = time_s() - counted_s
            arrived_bytes = sending.arrived_bytes - before_bytes
        finally:
            del self._sendings[route]
        gbps = arrived_bytes * 8 / steady_s / 1e9
        return ProbeReport(gbps, arrived_bytes, steady_s, connections, sending.sent_bytes)

    async def _send(self, route: int, sending: _Sending, until_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while True:
                    # The next chunk, which is one frame.
                    size_bytes = max(
                        _LEAST_BYTES, min(sending.arrived_bytes // _SHARE, _MOST_BYTES)
                    )
                    self._chunks += 1
                    chunk = ChunkId(self._fleet, PROBE_TRANSFER, 0, route, 0, self._chunks)
                    manifest = ChunkManifest(size_bytes, (ObjectEntry("probe", size_bytes),))
                    payload = memoryview(self._payload)[:size_bytes]
                    [frame] = ChunkFramer(chunk, manifest).feed(payload)
                    sending.unanswered[chunk.chunk] = size_bytes
                    await self._send_frame(frame)
                    sending.sent_bytes += size_bytes
                    # A connection that takes all at once would keep the receipts from being read.
                    await asyncio.sleep(0)

    # -- what arrives

    def on_frame(self, chunk: ChunkId) -> None:
        """Discard a chunk of a probe that ends here, and say so."""
        self._send_receipt(seal_receipt(chunk, Receipt(0)))

    def on_receipt(self, chunk: ChunkId) -> None:
        """Count a chunk of a probe that begins here."""
        sending = self._sendings.get(chunk.route)
        if sending is not None:
            sending.arrived_bytes += sending.unanswered.pop(chunk.chunk, 0)
