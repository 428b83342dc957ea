"""The events of a connection: frozen values, in the order of their occurrence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from skyplane_gateway.protocol.frames import Claim
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.reasons import GoodbyeReason


class NeedData(Enum):
    """No event until the peer sends more."""

    NEED_DATA = "need-data"


NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class Established:
    """Both sides have proven that they hold their shared key; data may flow.

    Attributes:
        peer_node: the peer's name, proven.
        route: number of the connection's route.
        peer_is_upstream: the peer sends frames and this side sends receipts, or the reverse.
    """

    peer_node: str
    route: int
    peer_is_upstream: bool


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """One DATA frame. `sealed` is read-only and owns its memory, so it may be kept."""

    header: FrameHeader
    sealed: memoryview


@dataclass(frozen=True, slots=True)
class FramePlaced:
    """One DATA frame whose payload is in its claim; see `end_frame`."""

    claim: Claim
    tag: memoryview


@dataclass(frozen=True, slots=True)
class ReceiptReceived:
    """One RECEIPT. `sealed` is read-only and owns its memory."""

    header: ChunkId
    sealed: memoryview


@dataclass(frozen=True, slots=True)
class GoodbyeReceived:
    """The peer sends nothing more. Finish pending work, then `close()`."""

    reason: GoodbyeReason
    text: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The last event. `is_clean` is False if the peer ended without a GOODBYE."""

    is_clean: bool


Event: TypeAlias = (
    Established | FrameReceived | FramePlaced | ReceiptReceived | GoodbyeReceived | ConnectionClosed
)
