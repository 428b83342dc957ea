"""Limits the rate at which a gateway sends the bytes that it reads."""

from __future__ import annotations

import asyncio
from typing import Final

#: Time without a sender that a burst may make up for.
_BURST_S: Final = 0.05


class Bandwidth:
    """One token bucket for all limited transfers of a gateway.

    Its rate is the lowest limit of the transfers that are attached now: they share one uplink,
    and each limit bounds what all of them send. A transfer without a limit takes no tokens.
    All methods run on the event loop.
    """

    def __init__(self) -> None:
        #: Transfer -> its limit, in bytes/s.
        self._limits: dict[bytes, float] = {}
        #: When all tokens that were taken are paid for, by the loop's clock.
        self._paid_at_s = 0.0

    def limit(self, transfer: bytes, bytes_per_s: float | None) -> None:
        """Set the limit of a transfer; None removes it."""
        if bytes_per_s is None:
            self._limits.pop(transfer, None)
        else:
            self._limits[transfer] = bytes_per_s

    def is_limited(self, transfer: bytes) -> bool:
        return transfer in self._limits

    async def take(self, transfer: bytes, count_bytes: int) -> None:
        """Wait until so many bytes may be sent; in the order of calls."""
        if transfer not in self._limits:
            return
        now_s = asyncio.get_running_loop().time()
        begins_s = max(self._paid_at_s, now_s - _BURST_S)
        # Senders wait before their bytes, so that the first one counts in full.
        took_s = count_bytes / min(self._limits.values())
        self._paid_at_s = begins_s + took_s
        try:
            await asyncio.sleep(self._paid_at_s - now_s)
        except asyncio.CancelledError:
            self._paid_at_s -= took_s
            raise
