"""Protocol errors by the side at fault; part of the gateway's error tree."""

from __future__ import annotations

from typing import ClassVar

from skyplane_gateway.common.errors import GatewayError
from skyplane_gateway.protocol.reasons import GoodbyeReason


class ProtocolError(GatewayError):
    """A violation of the wire protocol. Abstract: raise the error of one side."""

    def __init__(self, message: str, *, is_permanent: bool | None = None) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise the error of one side")
        super().__init__(message, is_permanent=is_permanent)


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
    #: The two versions; 0 where the error was rebuilt from its message.
    local_version: int = 0
    remote_version: int = 0

    @classmethod
    def of(cls, local_version: int, remote_version: int) -> WireVersionMismatch:
        error = cls(
            f"this gateway speaks wire version {local_version}, the peer {remote_version}; "
            "bring both to the same release"
        )
        error.local_version = local_version
        error.remote_version = remote_version
        return error


class FrameCorrupt(RemoteProtocolError):
    """A frame or a receipt does not match its checksum. The chunk is sent again."""


class FrameAltered(FrameCorrupt):
    """An encrypted frame or receipt does not open: somebody on its way has altered it."""


class NotEncrypted(FrameAltered):
    """A frame or receipt is in plain text, but its transfer is encrypted.

    Anybody on its way can have made it, and also a sink that does not have the transfer's key.
    """
