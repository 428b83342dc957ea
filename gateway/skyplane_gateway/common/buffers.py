"""Byte buffers that are passed on without a copy."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from mmap import mmap
from typing import Final, TypeAlias

if sys.platform == "linux":
    from mmap import MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE

#: One-dimensional, contiguous bytes. Do not write to a buffer that was handed over:
#: nothing here copies it.
Buffer: TypeAlias = bytes | bytearray | memoryview

#: Memory of one chunk that is received.
ChunkBuffer: TypeAlias = bytearray | mmap

#: Shorter buffers gain nothing from huge pages, which have 2 MiB.
_HUGE_PAGES_FROM_BYTES: Final = 4 << 20


def _unwritten() -> Callable[[int], bytearray]:
    """`bytearray`, without the time that it takes to write zeros."""
    # The documented C API of CPython.
    made = ctypes.pythonapi.PyByteArray_FromStringAndSize
    made.argtypes, made.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object
    return lambda length: made(None, length)


#: A buffer of so many bytes that hold anything. Who makes it fills it before anybody reads it.
unwritten: Final[Callable[[int], bytearray]] = (
    _unwritten() if sys.implementation.name == "cpython" else bytearray
)


def total_bytes(buffers: Iterable[Buffer]) -> int:
    """Length of all buffers together, in bytes."""
    return sum(map(len, buffers))


class BufferPool:
    """Keeps buffers of chunks that have been written, for the next chunks.

    Fresh memory costs a page fault for each 4 KiB, which takes more CPU than to copy the bytes.
    """

    #: A kept buffer serves for a chunk that is shorter by at most this share of its length.
    _SPARE_SHARE: Final = 4

    def __init__(self) -> None:
        self._kept: list[ChunkBuffer] = []

    def take(self, length: int, *, keep_bytes: int) -> ChunkBuffer:
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
        return _fresh(length) if found is None else found

    def give(self, buffer: ChunkBuffer) -> None:
        """Keep a buffer. The caller promises that nothing reads or writes it any more."""
        self._kept.append(buffer)

    def clear(self) -> None:
        """Free all kept buffers."""
        self._kept.clear()


def _fresh(length: int) -> ChunkBuffer:
    """Memory in huge pages where the system has them, because they save most page faults."""
    if sys.platform != "linux" or length < _HUGE_PAGES_FROM_BYTES:
        return bytearray(length)
    made = mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    with suppress(OSError):  # A kernel without huge pages answers EINVAL.
        made.madvise(MADV_HUGEPAGE)
    return made
