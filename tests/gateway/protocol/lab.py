"""Two connections without a network between them; frames, receipts and a CRC32C to test with."""

from __future__ import annotations

import hashlib

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, ObjectEntry, PartEntry
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.events import NEED_DATA, Event
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import EntryResult, RawReceipt, Receipt, seal_receipt
from skyplane_gateway.protocol.states import FINAL, State

FLEET = b"fleet-01"
ROUTE = 7
KEY = bytes(range(32))
NODES = ("aws:us-east-1/0", "gcp:us-west1/1", "a", "b", "c")

PART = ChunkManifest(9, PartEntry("a/b.c", "u1", 1, 0))
OBJECTS = ChunkManifest(
    9,
    (
        ObjectEntry("a", 4),
        ObjectEntry("é", 0, precondition=IF_ABSENT),
        ObjectEntry(
            "c",
            5,
            ObjectAttributes(
                content_type="t/x", cache_control="", metadata=(("k", "v"), ("n", ""))
            ),
            Precondition(if_match='"e"'),
        ),
    ),
)


def identity_of(node: str) -> Identity:
    """The node with one key for each neighbour."""
    keys = {peer: _shared(node, peer) for peer in NODES if peer != node}
    return Identity(FLEET, node, keys)


def _shared(one: str, other: str) -> bytes:
    pair = sorted((one, other))
    # The first two nodes are those of the example in the specification.
    return KEY if pair == sorted(NODES[:2]) else hashlib.sha256(repr(pair).encode()).digest()


def give(connection: Connection, data: Buffer) -> None:
    """Any number of bytes, as an event loop gives them."""
    rest = memoryview(data)
    while rest and connection.state not in FINAL:
        buffer = connection.get_buffer()
        count = min(len(buffer), len(rest))
        buffer[:count], rest = rest[:count], rest[count:]
        connection.buffer_updated(count)


def events_of(connection: Connection) -> list[Event]:
    found: list[Event] = []
    while (event := connection.next_event()) is not NEED_DATA:
        found.append(event)
    return found


class ConnectionPair:
    """A dialer and an acceptor."""

    def __init__(self, side: Side = Side.UPSTREAM) -> None:
        self.dialer = Connection.dial(
            identity_of("aws:us-east-1/0"), route=ROUTE, side=side, nonce=b"D" * 16
        )
        self.acceptor = Connection.accept(identity_of("gcp:us-west1/1"), nonce=b"A" * 16)
        self.is_dialer_upstream = side is Side.UPSTREAM

    @property
    def upstream(self) -> Connection:
        return self.dialer if self.is_dialer_upstream else self.acceptor

    @property
    def downstream(self) -> Connection:
        return self.acceptor if self.is_dialer_upstream else self.dialer

    def exchange(self) -> dict[Connection, list[Event]]:
        """Deliver all messages in both directions; returns the events by receiver."""
        events: dict[Connection, list[Event]] = {self.dialer: [], self.acceptor: []}
        busy = True
        while busy:
            busy = False
            for sender, receiver in (
                (self.dialer, self.acceptor),
                (self.acceptor, self.dialer),
            ):
                for buffer in sender.data_to_send():
                    busy = True
                    give(receiver, buffer)
                events[receiver] += events_of(receiver)
        return events

    def established(self) -> ConnectionPair:
        self.exchange()
        assert {self.upstream.state, self.downstream.state} == {State.UPSTREAM, State.DOWNSTREAM}
        return self


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C from its definition (RFC 3720: reflected polynomial 0x82F63B78)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def make_frames(payload: Buffer, *, chunk: int = 5, frame_bytes: int = 64) -> list[RawFrame]:
    framer = ChunkFramer(
        ChunkId(FLEET, b"T" * 16, 3, ROUTE, 2, chunk),
        ChunkManifest(len(payload), PartEntry("a/b.c", "u1", 1, 0)),
        max_payload_bytes=frame_bytes,
    )
    return framer.feed(payload)


def make_receipt(chunk: int = 5) -> RawReceipt:
    header = ChunkId(FLEET, b"T" * 16, 3, ROUTE, 2, chunk)
    entry = EntryResult(None, etag='"e1"', crc32c=1)
    return seal_receipt(header, Receipt(3, entries=(entry,)))
