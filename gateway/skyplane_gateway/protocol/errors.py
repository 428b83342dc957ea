"""Protocol errors by whose fault it is, as leaves of the gateway's error tree."""

from __future__ import annotations

from typing import ClassVar

from skyplane_gateway.errors import GatewayError
from skyplane_gateway.protocol.reasons import GoodbyeReason


class ProtocolError(GatewayError):
    """The wire protocol was broken. Abstract: raise one of the two sides."""

    code = "protocol-error"

    def __init__(self, message: str, *, is_permanent: bool | None = None) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: say whose fault it is")
        super().__init__(message, is_permanent=is_permanent)


class LocalProtocolError(ProtocolError):
    """This process asked for something that the protocol does not allow: a defect here."""

    code = "local-protocol-error"
    is_permanent = True


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow. Close the connection; dial again."""

    code = "remote-protocol-error"
    #: What the GOODBYE to the peer gives as the reason.
    reason: ClassVar[GoodbyeReason] = GoodbyeReason.PROTOCOL_ERROR


class HelloRefused(RemoteProtocolError):
    """The peer is not who it must be: another fleet, another key, ourselves."""

    code = "hello-refused"
    is_permanent = True
    reason = GoodbyeReason.HELLO_REFUSED


class WireVersionMismatch(RemoteProtocolError):
    """The peer speaks another version of the wire. Upgrade the older side."""

    code = "wire-version-mismatch"
    is_permanent = True
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
    """Bytes of a frame or a receipt are not those that were sent. Send the chunk again."""

    code = "frame-corrupt"
