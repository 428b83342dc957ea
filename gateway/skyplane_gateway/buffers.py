"""Byte buffers that are passed on without a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

#: One-dimensional, contiguous bytes. Do not write to a buffer that was handed over:
#: nothing here copies it.
Buffer: TypeAlias = bytes | bytearray | memoryview


def total_bytes(buffers: Iterable[Buffer]) -> int:
    """Length of all buffers together, in bytes."""
    return sum(
        buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers
    )
