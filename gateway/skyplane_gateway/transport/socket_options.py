"""Options of a data connection's socket, and what waits in it.

Without the options the kernel takes 15 minutes to notice a neighbour that vanished (its machine,
or one direction of the network), and never notices it while nothing is sent. With them it
takes about the write timeout.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from typing import Final

#: Silence before the first keepalive probe, and the interval between probes.
_KEEPALIVE_AFTER_S: Final = 20
_KEEPALIVE_EVERY_S: Final = 10
_KEEPALIVE_TRIES: Final = 4

#: SIOCOUTQNSD of linux/sockios.h: bytes in the send queue that were not sent for the first time.
_NOT_SENT: Final = 0x894B


def set_options(handle: socket.socket, write_timeout_s: float) -> None:
    """Sent bytes may go unacknowledged for at most `write_timeout_s` (RFC 5482)."""
    tcp = socket.IPPROTO_TCP
    handle.setsockopt(tcp, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has these options; the link's own write timeout works everywhere.
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_AFTER_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_EVERY_S),
        ("TCP_KEEPCNT", _KEEPALIVE_TRIES),
        ("TCP_USER_TIMEOUT", max(1, round(write_timeout_s * 1000))),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            handle.setsockopt(tcp, option, value)


def not_sent_bytes(handle: socket.socket | None) -> int:
    """Bytes in the kernel that were not sent yet; 0 where the system does not say.

    Args:
        handle: None of a connection without a socket.
    """
    if handle is None or not sys.platform.startswith("linux"):
        return 0
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(handle.fileno(), _NOT_SENT, bytes(4)))
    except (OSError, ValueError):  # It is closed.
        return 0
    return int(count)
