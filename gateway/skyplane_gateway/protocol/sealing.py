"""The interface for end-to-end encryption, and the plain sealer.

    sealed part   suite u16 | incarnation 16 | counter u64 | body | tag 16

Every suite has this layout, so sealing changes no size and no offset. Suite 1 is reserved for
AES-256-GCM: `incarnation` names the sender's subkey (HKDF), `counter` is the nonce, the outer
header is associated data, `tag` is GCM's. Suite 0 has no key: those fields must be zero.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from skyplane_gateway.buffers import Buffer
from skyplane_gateway.protocol.errors import RemoteProtocolError

SUITE_PLAIN: Final = 0
SUITE_AES_256_GCM: Final = 1

_PROLOGUE: Final = struct.Struct(">H16sQ")
PROLOGUE_BYTES: Final = _PROLOGUE.size
TAG_BYTES: Final = 16
#: Bytes that sealing adds to a body, in every suite.
SEAL_BYTES: Final = PROLOGUE_BYTES + TAG_BYTES


class Sealer(Protocol):
    """Seals and opens the body of a frame or a receipt."""

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """The sealed part as adjacent buffers, `SEAL_BYTES` longer than the body.

        `outer` is the packed outer header (52 or 48 bytes), authenticated with the body. The
        first buffer of the body is small, the others are payload.
        """

    def open(self, outer: bytes, sealed: memoryview) -> memoryview:
        """The body. Raises RemoteProtocolError for another suite, or a short or altered body."""


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
                f"frame of suite {suite}, but this fleet does not seal; give both ends one key"
            )
        if sealed[:PROLOGUE_BYTES] != self._HEAD or sealed[-TAG_BYTES:] != self._TAG:
            raise RemoteProtocolError("plain frame whose incarnation, counter or tag is not zero")
        return sealed[PROLOGUE_BYTES:-TAG_BYTES]


PLAIN: Final = PlainSealer()
