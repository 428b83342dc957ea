"""Bodies of requests, sent block by block, and how much of them has been sent.

The timeout of a socket covers one block. For a whole part it would set a minimum rate, below which
no part ever arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from skyplane_gateway.common.objects import MIB, Body

_thread: Final = threading.local()


@contextmanager
def noting_sent(note: Callable[[int], None]) -> Iterator[None]:
    """Within it, tell how many bytes of a body this thread has sent; a retry begins at 0."""
    before = getattr(_thread, "note", None)
    _thread.note = note
    try:
        yield
    finally:
        _thread.note = before


class Blocks:
    """A body in blocks without copies; each iteration begins at its start."""

    def __init__(self, body: Body, block_bytes: int = MIB) -> None:
        self._view = memoryview(body).cast("B")
        self._block_bytes = block_bytes

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[memoryview]:
        note: Callable[[int], None] | None = getattr(_thread, "note", None)
        for start in range(0, len(self._view), self._block_bytes):
            if note is not None:
                note(start)
            yield self._view[start : start + self._block_bytes]
