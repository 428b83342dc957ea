"""When a file was made, which `os.stat` does not tell on Linux.

A change of owner, mode or name leaves that time, unlike the time of the last change of the inode.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Final

#: From linux/stat.h and linux/fcntl.h (statx(2), man-pages 6.9).
_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_NS: Final = 1e-9


class _Time(ctypes.Structure):
    _fields_ = (("s", ctypes.c_int64), ("ns", ctypes.c_uint32), ("_pad", ctypes.c_int32))


class _Statx(ctypes.Structure):
    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_before", ctypes.c_uint8 * 76),
        ("made", _Time),
        ("_after", ctypes.c_uint8 * 160),
    )


def made_at(path: str, status: os.stat_result) -> float | None:
    """Unix seconds when a file was made, through links; None where the system does not tell."""
    found: float | None = getattr(status, "st_birthtime", None)
    if found is not None:
        return found
    statx, answer = _statx(), _Statx()
    if statx is None:
        return None
    failed = statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, ctypes.byref(answer))
    if failed or not answer.mask & _STATX_BTIME:
        return None
    return float(answer.made.s + answer.made.ns * _NS)


@cache
def _statx() -> Callable[..., int] | None:
    """The call of the C library; None for a system without it."""
    try:
        call: Callable[..., int] = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None
    return call
