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
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol._fields import pack_fields, unpack_fields
from skyplane_gateway.protocol.errors import RemoteProtocolError
from skyplane_gateway.protocol.limits import FLEET_BYTES, MAX_NODE, NONCE_BYTES, PROOF_BYTES
from skyplane_gateway.protocol.messages import MessageType, pack_prefix

_ACCEPTOR: Final = b"skyplane wire v1: the acceptor holds the key\n"
_DIALER: Final = b"skyplane wire v1: the dialer holds the key\n"
_HELLO: Final = struct.Struct(f">{FLEET_BYTES}s{NONCE_BYTES}sHB")
_CHALLENGE: Final = struct.Struct(f">{FLEET_BYTES}s{NONCE_BYTES}s{PROOF_BYTES}s")
_PROOF: Final = struct.Struct(f">{PROOF_BYTES}s")


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
    values = hello.fleet, hello.nonce, hello.route, hello.side
    return _packed(MessageType.HELLO, _HELLO, values, hello.node)


def unpack_hello(body: Buffer) -> Hello:
    (fleet, nonce, route, side), node = unpack_fields("HELLO", _HELLO, body, MAX_NODE)
    try:
        return Hello(fleet, nonce, route, Side(side), node)
    except ValueError as error:
        raise RemoteProtocolError(f"HELLO: side {side} is unknown") from error


def pack_challenge(challenge: Challenge, proof: bytes) -> bytes:
    values = challenge.fleet, challenge.nonce, proof
    return _packed(MessageType.CHALLENGE, _CHALLENGE, values, challenge.node)


def unpack_challenge(body: Buffer) -> tuple[Challenge, bytes]:
    """Decode the body of a CHALLENGE: the challenge and its proof."""
    (fleet, nonce, proof), node = unpack_fields("CHALLENGE", _CHALLENGE, body, MAX_NODE)
    return Challenge(fleet, nonce, node), proof


def pack_proof(proof: bytes) -> bytes:
    return _packed(MessageType.PROOF, _PROOF, (proof,), "")


def unpack_proof(body: Buffer) -> bytes:
    (proof,), _ = unpack_fields("PROOF", _PROOF, body, 0)
    return bytes(proof)


def _packed(
    kind: MessageType, layout: struct.Struct, values: tuple[object, ...], node: str
) -> bytes:
    body = pack_fields(kind.name, layout, values, node, MAX_NODE)
    return pack_prefix(kind, len(body)) + body


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
