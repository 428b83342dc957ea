"""Options of a data connection's socket.

A neighbour that vanishes without a word (its machine, or one direction of the network)
is noticed by the kernel alone where nothing is being sent, and else after 15 minutes;
the two options below bring that down to about the write timeout.
"""

from __future__ import annotations

import socket
from typing import Final

#: Silence after which the kernel asks whether the peer is still there, and how often.
_KEEPALIVE_AFTER_S: Final = 20
_KEEPALIVE_EVERY_S: Final = 10
_KEEPALIVE_TRIES: Final = 4


def tune(handle: socket.socket, write_timeout_s: float) -> None:
    """Set what a data connection needs.

    Args:
        write_timeout_s: longest time that sent bytes may go unacknowledged (RFC 5482).
    """
    tcp = socket.IPPROTO_TCP
    handle.setsockopt(tcp, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has them: the write timeout of the link itself holds everywhere.
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_AFTER_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_EVERY_S),
        ("TCP_KEEPCNT", _KEEPALIVE_TRIES),
        ("TCP_USER_TIMEOUT", max(1, round(write_timeout_s * 1000))),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            handle.setsockopt(tcp, option, value)
