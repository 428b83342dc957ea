"""Settings of glibc's memory allocator for a process that moves frames."""

from __future__ import annotations

import ctypes
from typing import Final

from skyplane_gateway.common.objects import MIB

#: Freed memory that each heap keeps.
KEPT_BYTES: Final = 32 * MIB

#: Heaps: more threads than these share one.
HEAPS: Final = 4

#: Larger blocks come from the kernel each time, and go back to it.
_MOST_ON_HEAP_BYTES: Final = 4 * MIB

# <malloc.h>
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_freed_memory() -> bool:
    """Keep the memory of sent frames for the next ones; False without glibc.

    By default the heap gives 2 MiB and more back to the kernel at once. Each later use then costs a
    page fault for every 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_ARENA_MAX, HEAPS),
        (_M_MMAP_THRESHOLD, _MOST_ON_HEAP_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
    )
    return all(mallopt(name, value) for name, value in settings)
