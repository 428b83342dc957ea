"""What travels as bytes, without being copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

#: One-dimensional, contiguous bytes. Whoever hands one over must not write to it
#: before it has left the process: nothing here makes a copy.
Buffer: TypeAlias = bytes | bytearray | memoryview


def total_bytes(buffers: Iterable[Buffer]) -> int:
    """Length of all buffers together, in bytes."""
    return sum(
        buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers
    )
