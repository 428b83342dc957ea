"""Random bytes are accepted or raise `RemoteProtocolError`; memory stays limited."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from tests.gateway.protocol.lab import ConnectionPair, give, make_frames, make_receipt

from skyplane_gateway.protocol._reader import STAGING_BYTES
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.chunk_manifest import decode_chunk_manifest
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.errors import RemoteProtocolError
from skyplane_gateway.protocol.events import NEED_DATA, FrameReceived, ReceiptReceived
from skyplane_gateway.protocol.frames import OpenedFrame, open_frame
from skyplane_gateway.protocol.handshake import Side, unpack_challenge, unpack_hello, unpack_proof
from skyplane_gateway.protocol.limits import MAX_MESSAGE, WIRE_VERSION
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader, unpack_goodbye
from skyplane_gateway.protocol.receipt import open_receipt
from skyplane_gateway.protocol.states import FINAL, State

PAYLOAD = bytes(range(256)) * 2
#: Each seed makes one mutated stream; a failure names its seed.
SEEDS = range(600)


class Driver:
    """Opens the messages of one connection, assembles chunks and counts events."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.assemblers: dict[ChunkId, ChunkAssembler] = {}
        self.events = 0

    def feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            buffer = self.connection.get_buffer()
            assert 0 < len(buffer) <= max(STAGING_BYTES, MAX_MESSAGE)
            count = min(len(buffer), len(rest))
            buffer[:count], rest = rest[:count], rest[count:]
            self.connection.buffer_updated(count)
            self._drain()

    def _drain(self) -> None:
        try:
            while (event := self.connection.next_event()) is not NEED_DATA:
                self.events += 1
                if isinstance(event, FrameReceived):
                    self._take(event)
                elif isinstance(event, ReceiptReceived):
                    open_receipt(event.header, event.sealed)
        except RemoteProtocolError:
            return

    def _take(self, event: FrameReceived) -> None:
        frame: OpenedFrame = open_frame(event.header, event.sealed)
        key = event.header.chunk_id
        made = ChunkAssembler(key, len(PAYLOAD), bytearray(len(PAYLOAD)))
        sink = self.assemblers.setdefault(key, made)
        if sink.add(frame):
            assert sink.payload == PAYLOAD


def record() -> list[bytes]:
    """All messages that the dialing upstream sends, and all that it receives."""
    pair = ConnectionPair(Side.UPSTREAM)
    sent, received = [pair.dialer.data_to_send()], []
    for buffer in sent[0]:
        give(pair.acceptor, buffer)
    received.append(pair.acceptor.data_to_send())
    for buffer in received[0]:
        give(pair.dialer, buffer)
    sent.append(pair.dialer.data_to_send())
    for buffer in sent[1]:
        give(pair.acceptor, buffer)
    for frame in make_frames(PAYLOAD, frame_bytes=200):
        pair.dialer.send_frame(frame.header, *frame.sealed)
        sent.append(pair.dialer.data_to_send())
    for chunk in range(3):
        receipt = make_receipt(chunk)
        pair.acceptor.send_receipt(receipt.header, *receipt.sealed)
        received.append(pair.acceptor.data_to_send())
    pair.dialer.close()
    pair.acceptor.close()
    sent.append(pair.dialer.data_to_send())
    received.append(pair.acceptor.data_to_send())
    return [b"".join(b"".join(message) for message in side) for side in (sent, received)]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four changes, as by networks, defects and attackers."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 52, 100))
        kind = rng.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + size]
        elif kind == 2:
            changed[at:at] = rng.randbytes(size)
        elif kind == 3:
            changed[at:at] = changed[at : at + size]
        elif kind == 4:
            changed[at : at + size] = rng.choice((b"\0", b"\xff")) * len(changed[at : at + size])
        else:
            start = rng.randrange(len(changed) + 1)
            changed[at : at + size] = changed[start : start + size]
    return bytes(changed)


@pytest.mark.parametrize("side", ["acceptor", "dialer"])
def test_mutated_streams(side: str) -> None:
    sent, received = record()
    good = sent if side == "acceptor" else received
    refused = 0
    for seed in SEEDS:
        rng = random.Random(f"{side} {seed}")
        data = mutate(good, rng)
        driver = Driver(getattr(ConnectionPair(Side.UPSTREAM), side))
        while data:
            size = rng.choice((1, 3, 8, 50, 1000))
            try:
                driver.feed(data[:size])
            except Exception as error:
                raise AssertionError(f"seed {side} {seed}: {error!r}") from error
            data = data[size:]
        refused += driver.connection.state is State.FAILED
        driver.connection.receive_eof()
        assert driver.connection.state in FINAL
    assert refused > len(SEEDS) // 3, "the mutations must hit something"


def test_unmutated_streams_are_accepted() -> None:
    sent, received = record()
    pair = ConnectionPair(Side.UPSTREAM)
    sink, source = Driver(pair.acceptor), Driver(pair.dialer)
    sink.feed(sent)
    source.feed(received)
    assert sink.connection.state is State.DOWNSTREAM_LEFT
    assert source.connection.state is State.UPSTREAM_LEFT
    assert [chunk.is_complete for chunk in sink.assemblers.values()] == [True]
    assert (sink.events, source.events) == (1 + 3 + 1, 1 + 3 + 1)


prefixes = st.builds(
    lambda kind, flags, version, length: (
        bytes([kind, flags]) + version.to_bytes(2, "big") + length.to_bytes(4, "big")
    ),
    st.integers(0, 8),
    st.sampled_from([0, 1, 2, 255]),
    st.sampled_from([0, 1, *[WIRE_VERSION] * 3]),
    st.one_of(st.integers(0, 200), st.integers(0, (1 << 32) - 1)),
)


@given(st.lists(st.one_of(prefixes, st.binary(max_size=120)), max_size=8))
def test_arbitrary_bytes(pieces: list[bytes]) -> None:
    identity = Identity(b"fleet-01", "b", {"a": bytes(32)})
    dialer = Connection.dial(identity, route=7, side=Side.UPSTREAM, nonce=bytes(16))
    for connection in (Connection.accept(identity, nonce=bytes(16)), dialer):
        driver = Driver(connection)
        for piece in pieces:
            driver.feed(piece)
        assert connection.established is None


@given(st.lists(st.one_of(prefixes, st.binary(max_size=120)), max_size=8))
def test_arbitrary_bytes_after_the_handshake(pieces: list[bytes]) -> None:
    for side in Side:
        driver = Driver(ConnectionPair(side).established().acceptor)
        for piece in pieces:
            driver.feed(piece)


READERS: dict[str, Callable[[memoryview], object]] = {
    "hello": unpack_hello,
    "challenge": unpack_challenge,
    "proof": unpack_proof,
    "goodbye": unpack_goodbye,
    "manifest": decode_chunk_manifest,
    "receipt": lambda data: open_receipt(ChunkId(b"fleet-01", b"T" * 16, 3, 7, 0, 0), data),
    "frame": lambda data: open_frame(
        FrameHeader(ChunkId(b"fleet-01", b"T" * 16, 3, 7, 0, 0), 0, True), data
    ),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.binary(max_size=300))
def test_arbitrary_bodies(name: str, data: bytes) -> None:
    try:
        READERS[name](memoryview(data))
    except RemoteProtocolError:
        return
