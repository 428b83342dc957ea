"""Memory of frames that is used again."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Final

import pytest

#: Frees 16 MiB at a time, and prints the page faults of the last 20 times.
_FRAMES: Final = """
import resource, sys
from skyplane_gateway.common.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def frames():
    return [bytearray(b"x") * (1 << 20) for _ in range(16)]
for turn in range(25):
    if turn == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    frames()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FRAMES, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_frames_use_the_memory_of_earlier_frames() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library is not glibc")
    assert _faults("keep") < 1000 < _faults("default")
