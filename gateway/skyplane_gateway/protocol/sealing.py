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


class Sealer(Protocol):
    """Seals and opens the body of a frame or a receipt."""

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """The sealed part as adjacent buffers, `SEAL_BYTES` longer than the body.

        `outer` is the packed outer header (52 or 48 bytes), authenticated with the body. The
        first buffer of the body is small, the others are payload.
        """

    def open(self, outer: bytes, sealed: memoryview) -> memoryview:
        """The body.

        Raises:
            FrameAltered: it should be encrypted, and is not authentic.
            RemoteProtocolError: it should be plain, and has another suite or is too short.
        """


class PlainSealer:
    """Suite 0: the body in plain text, other fields zero. Copies no payload."""

    _HEAD: Final = bytes(PROLOGUE_BYTES)
    _TAG: Final = bytes(TAG_BYTES)

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        return (self._HEAD + bytes(body[0]), *body[1:], self._TAG)

    def open(self, outer: bytes, sealed: memoryview) -> memoryview:
        if len(sealed) < SEAL_BYTES:
            raise RemoteProtocolError(f"sealed part of {len(sealed)} bytes is too short")
        suite = int.from_bytes(sealed[:2], "big")
        if suite != SUITE_PLAIN:
            raise RemoteProtocolError(
                f"message of suite {suite}, but this transfer is not encrypted; give both ends"
                " one key"
            )
        if sealed[:PROLOGUE_BYTES] != self._HEAD or sealed[-TAG_BYTES:] != self._TAG:
            raise RemoteProtocolError("plain frame whose incarnation, counter or tag is not zero")
        return sealed[PROLOGUE_BYTES:-TAG_BYTES]


PLAIN: Final = PlainSealer()


@dataclass(frozen=True, slots=True)
class Sealing:
    """The sealers of one end of a transfer."""

    frames: Sealer = PLAIN
    receipts: Sealer = PLAIN


UNSEALED: Final = Sealing()
