"""The interface for encryption from source to sink, and the plain sealer.

    sealed part   suite u16 | incarnation 16 | counter u64 | body | tag 16

Every suite has this layout, so sealing changes no size and no offset. Suite 1 is AES-256-GCM
(`aes_gcm`): `incarnation` names the sender's subkey, `counter` is the nonce, the outer header is
associated data, `tag` is GCM's. Suite 0 has no key: those fields must be zero.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol.errors import RemoteProtocolError

SUITE_PLAIN: Final = 0
SUITE_AES_256_GCM: Final = 1

_PROLOGUE: Final = struct.Struct(">H16sQ")
PROLOGUE_BYTES: Final = _PROLOGUE.size
TAG_BYTES: Final = 16
#: Bytes that sealing adds to a body, in every suite.
SEAL_BYTES: Final = PROLOGUE_BYTES + TAG_BYTES


def pack_prologue(suite: int, incarnation: bytes, counter: int) -> bytes:
    """The fields before the body."""
    return _PROLOGUE.pack(suite, incarnation, counter)


def unpack_prologue(sealed: memoryview) -> tuple[int, bytes, int, memoryview]:
    """Suite, incarnation, counter, and the rest: body and tag."""
    suite, incarnation, counter = _PROLOGUE.unpack_from(sealed)
    return suite, incarnation, counter, sealed[PROLOGUE_BYTES:]


class Opening(Protocol):
    """A sealed part that is being opened, from its front to its end.

    What it gives is not authentic before `finish`.
    """

    @property
    def left_bytes(self) -> int:
        """Of the body, not taken yet."""

    def take(self, count: int) -> memoryview:
        """The next bytes of the body."""

    def take_into(self, place: memoryview) -> None:
        """The next bytes of the body, as many as `place` has."""

    def finish(self) -> None:
        """Raises FrameAltered: it should be encrypted, and is not authentic."""


def whole(opening: Opening) -> memoryview:
    """The whole body; raises as `finish`."""
    body = opening.take(opening.left_bytes)
    opening.finish()
    return body


class Sealer(Protocol):
    """Seals and opens the body of a frame or a receipt."""

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """The sealed part as adjacent buffers, `SEAL_BYTES` longer than the body.

        `outer` is the packed outer header (52 or 48 bytes), authenticated with the body. The
        first buffer of the body is small, the others are payload.
        """

    def open(self, outer: bytes, sealed: memoryview) -> Opening:
        """Begin to open a sealed part.

        Raises:
            FrameAltered: it should be encrypted, and is not.
            RemoteProtocolError: it should be plain, and has another suite or is too short.
        """


def require_plain_tag(tag: memoryview) -> None:
    """Raises RemoteProtocolError: the tag is not that of suite 0."""
    if any(tag):
        raise RemoteProtocolError("plain frame whose tag is not zero")


class PlainOpening:
    """Gives parts of the body as they are."""

    def __init__(self, body: memoryview) -> None:
        self._body = body

    @property
    def left_bytes(self) -> int:
        return len(self._body)

    def take(self, count: int) -> memoryview:
        taken, self._body = self._body[:count], self._body[count:]
        return taken

    def take_into(self, place: memoryview) -> None:
        place[:] = self.take(len(place))

    def finish(self) -> None:
        """Nothing proves plain text."""


class PlainSealer:
    """Suite 0: the body in plain text, other fields zero. Copies no payload."""

    _HEAD: Final = bytes(PROLOGUE_BYTES)
    _TAG: Final = bytes(TAG_BYTES)

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        return (self._HEAD + bytes(body[0]), *body[1:], self._TAG)

    def open(self, outer: bytes, sealed: memoryview) -> Opening:
        if len(sealed) < SEAL_BYTES:
            raise RemoteProtocolError(f"sealed part of {len(sealed)} bytes is too short")
        suite = int.from_bytes(sealed[:2], "big")
        if suite != SUITE_PLAIN:
            raise RemoteProtocolError(
                f"message of suite {suite}, but this transfer is not encrypted; give both ends"
                " one key"
            )
        if sealed[:PROLOGUE_BYTES] != self._HEAD:
            raise RemoteProtocolError("plain frame whose incarnation or counter is not zero")
        require_plain_tag(sealed[-TAG_BYTES:])
        return PlainOpening(sealed[PROLOGUE_BYTES:-TAG_BYTES])


PLAIN: Final = PlainSealer()


@dataclass(frozen=True, slots=True)
class Sealing:
    """The sealers of one end of a transfer."""

    frames: Sealer = PLAIN
    receipts: Sealer = PLAIN


UNSEALED: Final = Sealing()
