"""Byte buffers that are passed on without a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

#: One-dimensional, contiguous bytes. Do not write to a buffer that was handed over:
#: nothing here copies it.
Buffer: TypeAlias = bytes | bytearray | memoryview


def total_bytes(buffers: Iterable[Buffer]) -> int:
    """Length of all buffers together, in bytes."""
    return sum(
        buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers
    )


class BufferPool:
    """Keeps buffers of chunks that have been written, for the next chunks.

    Fresh memory costs a page fault for each 4 KiB, which takes more CPU than to copy the bytes.
    """

    #: A kept buffer serves for a chunk that is shorter by at most this share of its length.
    _SPARE_SHARE: Final = 4

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, length: int, *, keep_bytes: int) -> bytearray:
        """A buffer of at least `length` bytes, with any content.

        Args:
            keep_bytes: free the oldest kept buffers above this sum.
        """
        most = length + length // self._SPARE_SHARE
        fits = [index for index, kept in enumerate(self._kept) if length <= len(kept) <= most]
        found = None
        if fits:
            found = self._kept.pop(min(fits, key=lambda index: len(self._kept[index])))
        while self._kept and sum(map(len, self._kept)) > keep_bytes:
            del self._kept[0]
        return bytearray(length) if found is None else found

    def give(self, buffer: bytearray) -> None:
        """Keep a buffer. The caller promises that nothing reads or writes it any more."""
        self._kept.append(buffer)

    def clear(self) -> None:
        """Free all kept buffers."""
        self._kept.clear()
