"""Notices a peer that stops taking bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: Checks per timeout: the timeout fires at most a quarter late.
_CHECKS: Final = 4


class WriteTimeout:
    """Fires once when bytes have waited for `timeout_s` and none of them left.

    Args:
        unsent_bytes: bytes that wait now.
        sent_bytes: all bytes ever given to the transport.
        on_timeout: called at most once.
    """

    def __init__(
        self,
        timeout_s: float,
        unsent_bytes: Callable[[], int],
        sent_bytes: Callable[[], int],
        on_timeout: Callable[[], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._unsent_bytes = unsent_bytes
        self._sent_bytes = sent_bytes
        self._on_timeout = on_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._left_bytes = 0
        self._progress_s = 0.0

    def written(self) -> None:
        """Call after every write; costs next to nothing while the peer keeps up."""
        if self._timer is None and not self._is_over and self._unsent_bytes() > 0:
            loop = asyncio.get_running_loop()
            self._left_bytes = self._sent_bytes() - self._unsent_bytes()
            self._progress_s = loop.time()
            self._timer = loop.call_later(self._timeout_s / _CHECKS, self._check)

    def stop(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        unsent_bytes = self._unsent_bytes()
        if unsent_bytes == 0:
            return
        loop = asyncio.get_running_loop()
        left_bytes = self._sent_bytes() - unsent_bytes
        if left_bytes != self._left_bytes:
            self._left_bytes, self._progress_s = left_bytes, loop.time()
        elif loop.time() - self._progress_s >= self._timeout_s:
            self._is_over = True
            self._on_timeout()
            return
        self._timer = loop.call_later(self._timeout_s / _CHECKS, self._check)
