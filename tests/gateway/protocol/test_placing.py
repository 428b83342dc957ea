"""Payloads that are received straight into their chunk, and what must not be written over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from tests.gateway.protocol.lab import ConnectionPair, events_of, give, make_frames

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.connection import Connection
from skyplane_gateway.protocol.errors import FrameCorrupt, RemoteProtocolError
from skyplane_gateway.protocol.events import Event, FramePlaced, FrameReceived
from skyplane_gateway.protocol.frames import (
    Claim,
    OpenedFrame,
    RawFrame,
    begin_frame,
    end_frame,
    open_frame,
)
from skyplane_gateway.protocol.messages import FrameHeader

PAYLOAD = bytes(range(256)) * 200
#: The first does not fit into what a connection stages.
FRAME_BYTES = 20_000


def sealed(frame: RawFrame) -> memoryview:
    return memoryview(b"".join(frame.sealed))


def opened(frame: RawFrame) -> OpenedFrame:
    return open_frame(frame.header, sealed(frame))


def head_of(frame: RawFrame) -> OpenedFrame:
    whole = sealed(frame)
    found = begin_frame(frame.header, whole[:1000], len(whole))
    assert found is not None
    return found


class Receiver:
    """The sink's end of a connection, with one chunk."""

    def __init__(self, frames: list[RawFrame]) -> None:
        pair = ConnectionPair().established()
        for frame in frames:
            pair.upstream.send_frame(frame.header, *frame.sealed)
        self.data = b"".join(pair.upstream.data_to_send())
        self.connection: Connection = pair.downstream
        self.connection.claim_place = self.claim
        self.buffer = bytearray(len(PAYLOAD))
        self.chunk = ChunkAssembler(frames[0].header.chunk_id, len(PAYLOAD), self.buffer)
        self.claims: list[Claim] = []
        self.placed = 0

    def claim(self, header: FrameHeader, start: memoryview, sealed_bytes: int) -> Claim | None:
        head = begin_frame(header, start, sealed_bytes)
        claim = None if head is None else self.chunk.claim(head)
        if claim is not None:
            self.claims.append(claim)
        return claim

    def take(self, data: bytes) -> None:
        give(self.connection, data)
        for event in events_of(self.connection):
            self.chunk.add(self._frame_of(event))

    def _frame_of(self, event: Event) -> OpenedFrame:
        if isinstance(event, FramePlaced):
            self.placed += 1
            return end_frame(event.claim, event.tag)
        assert isinstance(event, FrameReceived)
        return open_frame(event.header, event.sealed)


@pytest.mark.parametrize("step", [1, 7, 106, 1000, 8191, 1 << 20])
def test_payloads_lie_in_the_chunk_however_the_stream_is_cut(step: int) -> None:
    here = Receiver(make_frames(PAYLOAD, frame_bytes=FRAME_BYTES))
    for start in range(0, len(here.data), step):
        here.take(here.data[start : start + step])
    assert here.chunk.is_complete
    assert here.chunk.payload == PAYLOAD
    assert here.placed == len(here.claims) > 0


@given(st.lists(st.integers(1, 30_000), max_size=20))
def test_payloads_lie_in_the_chunk_after_any_cuts(cuts: list[int]) -> None:
    here = Receiver(make_frames(PAYLOAD, frame_bytes=FRAME_BYTES))
    rest = here.data
    for cut in cuts:
        here.take(rest[:cut])
        rest = rest[cut:]
    here.take(rest)
    assert here.chunk.payload == PAYLOAD


def test_a_payload_of_a_chunk_that_is_given_up_goes_nowhere_and_the_next_frame_is_read() -> None:
    frames = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)
    here = Receiver(frames)
    begun = here.data[:10_000]
    give(here.connection, begun)
    here.chunk.withdraw()
    before = bytes(here.buffer)
    here.connection.claim_place = lambda *_: None
    give(here.connection, here.data[len(begun) :])
    events = events_of(here.connection)
    assert bytes(here.buffer) == before
    assert [type(event) for event in events] == [FrameReceived] * (len(frames) - 1)


def test_a_connection_that_stands_still_holds_no_memory_of_a_chunk_that_was_given_up() -> None:
    here = Receiver(make_frames(PAYLOAD, frame_bytes=FRAME_BYTES))
    give(here.connection, here.data[:10_000])
    here.chunk.withdraw()
    del here.chunk
    here.buffer.clear()  # Raises BufferError while anything refers to its bytes.


def test_a_damaged_payload_counts_as_not_received() -> None:
    first = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)[0]
    here = Receiver([first])
    bad = bytearray(here.data)
    bad[-100] ^= 1
    with pytest.raises(FrameCorrupt):
        here.take(bytes(bad))
    assert here.placed == 1
    assert not here.chunk.add(opened(first))
    for frame in make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)[1:]:
        here.chunk.add(opened(frame))
    assert here.chunk.payload == PAYLOAD


def test_a_tag_that_is_not_zero_is_refused() -> None:
    here = Receiver(make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)[:1])
    with pytest.raises(RemoteProtocolError, match="tag is not zero"):
        here.take(here.data[:-1] + b"x")


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: b"\1" + frame[1:],
        lambda frame: frame[:30] + b"x" + frame[31:],
        lambda frame: frame[:40],
    ],
    ids=["encrypted", "its head damaged", "too little of it"],
)
def test_only_a_verified_plain_head_gets_a_place(change: Callable[[bytes], bytes]) -> None:
    frame = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)[1]
    whole = sealed(frame)
    assert begin_frame(frame.header, memoryview(change(bytes(whole))), len(whole)) is None


def assembler(frames: list[RawFrame]) -> ChunkAssembler:
    return ChunkAssembler(frames[0].header.chunk_id, len(PAYLOAD), bytearray(len(PAYLOAD)))


def test_a_second_copy_gets_no_place_and_writes_over_nothing() -> None:
    frames = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)
    chunk = assembler(frames)
    chunk.add(opened(frames[1]))
    assert chunk.claim(head_of(frames[1])) is None
    before = bytes(chunk.buffer)
    forged = replace(opened(frames[1]), payload=memoryview(bytes(FRAME_BYTES)))
    with pytest.raises(FrameCorrupt):
        chunk.add(forged)
    assert bytes(chunk.buffer) == before


@pytest.mark.parametrize("number", [1, 3])
def test_a_head_whose_place_overlaps_a_frame_that_is_there_gets_none(number: int) -> None:
    frames = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)
    chunk = assembler(frames)
    chunk.add(opened(frames[1]))
    # A forged number, far from the frame that lies there.
    other = replace(head_of(frames[1]), header=replace(frames[1].header, frame=number))
    assert chunk.claim(other) is None
    shifted = replace(other, offset=other.offset + 5, length_bytes=other.length_bytes - 10)
    assert chunk.claim(shifted) is None


def test_a_whole_copy_of_a_frame_that_is_arriving_changes_nothing() -> None:
    frames = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)
    chunk = assembler(frames)
    claim = chunk.claim(head_of(frames[0]))
    assert claim is not None
    assert claim.view is not None
    assert not chunk.add(opened(frames[0]))
    assert not any(chunk.buffer)
    for frame in frames[1:]:
        assert not chunk.add(opened(frame))
    claim.view[:] = opened(frames[0]).payload
    assert chunk.add(end_frame(claim, memoryview(bytes(16))))
    assert chunk.payload == PAYLOAD


def test_a_frame_that_arrived_in_its_place_is_compared_with_its_neighbours_of_then() -> None:
    """Else a chunk with a gap would be complete."""
    frames = make_frames(PAYLOAD, frame_bytes=FRAME_BYTES)
    chunk = assembler(frames)
    late = head_of(frames[1])
    claim = chunk.claim(replace(late, offset=late.offset + 1, length_bytes=late.length_bytes - 1))
    assert claim is not None
    assert claim.view is not None
    chunk.add(opened(frames[0]))
    claim.view[:] = opened(frames[1]).payload[1:]
    claim.frame = replace(claim.frame, payload_crc32c=crc32c(claim.view))
    with pytest.raises(RemoteProtocolError, match="starts at"):
        chunk.add(end_frame(claim, memoryview(bytes(16))))
