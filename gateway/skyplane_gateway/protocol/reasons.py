"""The reasons of a GOODBYE."""

from __future__ import annotations

from enum import IntEnum


class GoodbyeReason(IntEnum):
    """Why a side ends a connection; the values are those on the wire."""

    DONE = 0
    DRAINING = 1
    PROTOCOL_ERROR = 2
    VERSION_MISMATCH = 3
    HELLO_REFUSED = 4
    UNKNOWN_ROUTE = 5
    OVERLOADED = 6
    CANCELLED = 7
    ROUTE_LOST = 8
