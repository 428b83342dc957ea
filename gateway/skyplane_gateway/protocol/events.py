"""What a connection reports: frozen values, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from skyplane_gateway.protocol.messages import FrameHeader, ReceiptHeader
from skyplane_gateway.protocol.reasons import GoodbyeReason


class NeedData(Enum):
    """Nothing more to report until the peer sends more."""

    NEED_DATA = "need-data"


NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class Established:
    """Both sides have proven that they hold the fleet's key; data may flow.

    Attributes:
        peer_node: the name that the peer proved to announce.
        route: the one route whose frames and receipts travel here.
        peer_is_upstream: True: it sends frames and we send receipts; False: the reverse.
    """

    peer_node: str
    route: int
    peer_is_upstream: bool


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """One DATA frame. `sealed` is read-only and owns its memory: keep it or pass it on."""

    header: FrameHeader
    sealed: memoryview


@dataclass(frozen=True, slots=True)
class ReceiptReceived:
    """One RECEIPT. `sealed` is read-only and owns its memory."""

    header: ReceiptHeader
    sealed: memoryview


@dataclass(frozen=True, slots=True)
class GoodbyeReceived:
    """The peer will send nothing more. Finish what is under way, then `close()`."""

    reason: GoodbyeReason
    text: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The last event. `is_clean` is False when the peer went without a GOODBYE."""

    is_clean: bool


Event: TypeAlias = (
    Established | FrameReceived | ReceiptReceived | GoodbyeReceived | ConnectionClosed
)
