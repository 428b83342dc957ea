"""The handshake: both sides prove that they hold the key that only the two share.

    HELLO      fleet 8 | nonce 16 | route u16 | side u8 | node       dialer -> acceptor
    CHALLENGE  fleet 8 | nonce 16 | proof 32  | node                 acceptor -> dialer
    PROOF      proof 32                                              dialer -> acceptor

No third gateway has the key, so a proof identifies its node. A proof is
HMAC-SHA256(key, label || HELLO || CHALLENGE without its proof). The label differs by side, so
a proof cannot be reflected. Both messages are covered, so nothing in them can be altered.
Each side's nonce binds a proof to its connection. See docs/internals/wire-protocol.md.

A value that does not fit raises LocalProtocolError, a malformed body RemoteProtocolError.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol._fields import FieldReader, FieldWriter
from skyplane_gateway.protocol.limits import (
    FLEET_BYTES,
    MAX_HANDSHAKE,
    MAX_NODE,
    NONCE_BYTES,
    PROOF_BYTES,
)
from skyplane_gateway.protocol.messages import MessageType, pack_prefix

_ACCEPTOR: Final = b"skyplane wire v1: the acceptor holds the key\n"
_DIALER: Final = b"skyplane wire v1: the dialer holds the key\n"


class Side(IntEnum):
    """Position of a node on the route, relative to the other end of the connection."""

    UPSTREAM = 1
    DOWNSTREAM = 2


@dataclass(frozen=True, slots=True)
class Hello:
    """The HELLO of the dialer. `side` is the dialer's: UPSTREAM sends frames."""

    fleet: bytes
    nonce: bytes
    route: int
    side: Side
    node: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """The CHALLENGE of the acceptor, without its proof."""

    fleet: bytes
    nonce: bytes
    node: str


def pack_hello(hello: Hello) -> bytes:
    """The encoded HELLO."""
    writer = FieldWriter("HELLO", MAX_HANDSHAKE)
    writer.raw(hello.fleet, FLEET_BYTES, "fleet")
    writer.raw(hello.nonce, NONCE_BYTES, "nonce")
    writer.u16(hello.route, "route")
    writer.u8(hello.side, "side")
    writer.text(hello.node, MAX_NODE, "node")
    body = writer.done()
    return pack_prefix(MessageType.HELLO, len(body)) + body


def unpack_hello(body: Buffer) -> Hello:
    """Decode the body of a HELLO."""
    reader = FieldReader("HELLO", body)
    fleet = reader.raw(FLEET_BYTES, "fleet")
    nonce = reader.raw(NONCE_BYTES, "nonce")
    route = reader.u16("route")
    number = reader.u8("side")
    node = reader.text(MAX_NODE, "node")
    reader.end()
    try:
        return Hello(fleet, nonce, route, Side(number), node)
    except ValueError as error:
        raise reader.error(f"side {number} is unknown") from error


def pack_challenge(challenge: Challenge, proof: bytes) -> bytes:
    """The encoded CHALLENGE."""
    writer = FieldWriter("CHALLENGE", MAX_HANDSHAKE)
    writer.raw(challenge.fleet, FLEET_BYTES, "fleet")
    writer.raw(challenge.nonce, NONCE_BYTES, "nonce")
    writer.raw(proof, PROOF_BYTES, "proof")
    writer.text(challenge.node, MAX_NODE, "node")
    body = writer.done()
    return pack_prefix(MessageType.CHALLENGE, len(body)) + body


def unpack_challenge(body: Buffer) -> tuple[Challenge, bytes]:
    """Decode the body of a CHALLENGE: the challenge and its proof."""
    reader = FieldReader("CHALLENGE", body)
    fleet = reader.raw(FLEET_BYTES, "fleet")
    nonce = reader.raw(NONCE_BYTES, "nonce")
    proof = reader.raw(PROOF_BYTES, "proof")
    node = reader.text(MAX_NODE, "node")
    reader.end()
    return Challenge(fleet, nonce, node), proof


def pack_proof(proof: bytes) -> bytes:
    """The encoded PROOF."""
    return pack_prefix(MessageType.PROOF, len(proof)) + proof


def unpack_proof(body: Buffer) -> bytes:
    """Decode the body of a PROOF."""
    reader = FieldReader("PROOF", body)
    proof = reader.raw(PROOF_BYTES, "proof")
    reader.end()
    return proof


def acceptor_proof(key: bytes, hello: Hello, challenge: Challenge) -> bytes:
    """The proof in the acceptor's CHALLENGE."""
    return _proof(key, _ACCEPTOR, hello, challenge)


def dialer_proof(key: bytes, hello: Hello, challenge: Challenge) -> bytes:
    """The proof in the dialer's PROOF."""
    return _proof(key, _DIALER, hello, challenge)


def is_proof(expected: bytes, received: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(expected, received)


def _proof(key: bytes, label: bytes, hello: Hello, challenge: Challenge) -> bytes:
    # Each message has its length and type, so the concatenation is unambiguous.
    announced = pack_hello(hello) + pack_challenge(challenge, bytes(PROOF_BYTES))
    return hmac.digest(key, label + announced, "sha256")
