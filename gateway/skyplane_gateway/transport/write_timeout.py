"""Notices a peer that takes nothing of what is waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: Looks per timeout: how late, at most, its end is seen.
_LOOKS: Final = 4


class WriteWatch:
    """Tells once when bytes have waited for `timeout_s` without one of them leaving.

    Args:
        unsent_bytes: how many bytes wait now.
        sent_bytes: how many were ever given to the transport.
        on_stall: told, at most once.
    """

    def __init__(
        self,
        timeout_s: float,
        unsent_bytes: Callable[[], int],
        sent_bytes: Callable[[], int],
        on_stall: Callable[[], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._unsent_bytes = unsent_bytes
        self._sent_bytes = sent_bytes
        self._on_stall = on_stall
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._left_bytes = 0
        self._moved_s = 0.0

    def look(self) -> None:
        """Something was written; costs next to nothing while the peer keeps up."""
        if self._timer is None and not self._is_over and self._unsent_bytes() > 0:
            loop = asyncio.get_running_loop()
            self._left_bytes = self._sent_bytes() - self._unsent_bytes()
            self._moved_s = loop.time()
            self._timer = loop.call_later(self._timeout_s / _LOOKS, self._look_again)

    def stop(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        self._timer = None
        unsent_bytes = self._unsent_bytes()
        if unsent_bytes == 0:
            return
        loop = asyncio.get_running_loop()
        left_bytes = self._sent_bytes() - unsent_bytes
        if left_bytes != self._left_bytes:
            self._left_bytes, self._moved_s = left_bytes, loop.time()
        elif loop.time() - self._moved_s >= self._timeout_s:
            self._is_over = True
            self._on_stall()
            return
        self._timer = loop.call_later(self._timeout_s / _LOOKS, self._look_again)
