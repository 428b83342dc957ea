"""Options of a data connection's socket.

Without them the kernel takes 15 minutes to notice a neighbour that vanished (its machine,
or one direction of the network), and never notices it while nothing is sent. With them it
takes about the write timeout.
"""

from __future__ import annotations

import socket
from typing import Final

#: Silence before the first keepalive probe, and the interval between probes.
_KEEPALIVE_AFTER_S: Final = 20
_KEEPALIVE_EVERY_S: Final = 10
_KEEPALIVE_TRIES: Final = 4


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
