"""Protocol errors by the side at fault; part of the gateway's error tree."""

from __future__ import annotations

from typing import ClassVar

from skyplane_gateway.common.errors import GatewayError
from skyplane_gateway.protocol.reasons import GoodbyeReason


class ProtocolError(GatewayError):
    """A violation of the wire protocol; raise the error of one side."""


class LocalProtocolError(ProtocolError, is_permanent=True):
    """This process tried something that the protocol forbids: a defect."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol. The connection is closed and dialed again."""

    #: Reason in the GOODBYE to the peer.
    reason: ClassVar[GoodbyeReason] = GoodbyeReason.PROTOCOL_ERROR


class HelloRefused(RemoteProtocolError, is_permanent=True):
    """The peer is not the expected neighbour: another fleet, another key, or itself."""

    reason = GoodbyeReason.HELLO_REFUSED


class WireVersionMismatch(RemoteProtocolError, is_permanent=True):
    """The peer speaks another version of the wire. Upgrade the older side."""

    reason = GoodbyeReason.VERSION_MISMATCH


class FrameCorrupt(RemoteProtocolError):
    """A frame or a receipt does not match its checksum. The chunk is sent again."""


class FrameAltered(FrameCorrupt):
    """An encrypted frame or receipt does not open: somebody on its way has altered it."""


class NotEncrypted(FrameAltered):
    """A frame or receipt is in plain text, but its transfer is encrypted.

    Anybody on its way can have made it, and also a sink that does not have the transfer's key.
    """
