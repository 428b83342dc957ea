"""Ports that no other test takes in the meantime."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_PROC_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nothing listens on, and that no connection and no port 0 is given.

    A port of the kernel's choice may go to another process as soon as its socket is closed.
    """
    end = int(_PROC_RANGE.read_text().split()[0]) if _PROC_RANGE.is_file() else 32_768
    for port in random.SystemRandom().sample(range(_FIRST, end), 100):
        with contextlib.suppress(OSError), socket.create_server((address, port)):
            return port
    raise OSError(f"no port of {address} between {_FIRST} and {end} is free")


def own_loopback_address() -> str:
    """An address of this process alone, so that a port that it gives up stays free."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"
