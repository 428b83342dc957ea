"""Any order of places, copies, damage and forged heads leaves accepted bytes as they are."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.gateway.protocol.lab import make_frames

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.errors import FrameCorrupt, RemoteProtocolError
from skyplane_gateway.protocol.frames import Claim, OpenedFrame, end_frame, open_frame

PAYLOAD = bytes(range(1, 61))
FRAMES = [
    open_frame(frame.header, memoryview(b"".join(frame.sealed)))
    for frame in make_frames(PAYLOAD, frame_bytes=10)
]
NO_TAG = memoryview(bytes(16))

numbers = st.integers(0, len(FRAMES) - 1)


@st.composite
def heads(draw: st.DrawFn) -> OpenedFrame:
    """A true head, or one with another number and place; its checksum is of what belongs there."""
    frame = FRAMES[draw(numbers)]
    if draw(st.booleans()):
        return frame
    offset = draw(st.integers(0, 59))
    length = draw(st.integers(1, 60 - offset))
    other = FRAMES[draw(numbers)]
    is_last = offset + length == len(PAYLOAD)
    payload = memoryview(PAYLOAD)[offset : offset + length]
    return replace(
        other,
        header=replace(other.header, is_last=is_last),
        offset=offset,
        length_bytes=length,
        payload=payload,
        payload_crc32c=crc32c(payload),
    )


class Placing(RuleBasedStateMachine):
    """One chunk, many connections."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(len(PAYLOAD))
        self.chunk = ChunkAssembler(FRAMES[0].header.chunk_id, len(PAYLOAD), self.buffer)

    @rule(target=claims, head=heads())
    def begin(self, head: OpenedFrame) -> Claim | None:
        return self.chunk.claim(head)

    @rule(claim=claims, count=st.integers(0, 60), is_damaged=st.booleans())
    def receive(self, claim: Claim | None, count: int, is_damaged: bool) -> None:
        if claim is None or claim.view is None or claim not in self.chunk._claims.values():
            return
        data = bytes(60) if is_damaged else claim.frame.payload
        count = min(count, len(claim.view))
        claim.view[:count] = data[:count]

    @rule(claim=consumes(claims))
    def end(self, claim: Claim | None) -> None:
        if claim is not None and claim.view is not None:
            self._add(end_frame(claim, NO_TAG))

    @rule(head=heads(), is_damaged=st.booleans())
    def copy(self, head: OpenedFrame, is_damaged: bool) -> None:
        self._add(
            replace(head, payload=memoryview(bytes(head.length_bytes))) if is_damaged else head
        )

    def _add(self, frame: OpenedFrame) -> None:
        with contextlib.suppress(FrameCorrupt, RemoteProtocolError):
            self.chunk.add(frame)

    @invariant()
    def accepted_bytes_stay(self) -> None:
        for span in self.chunk._spans.values():
            assert self.buffer[span.offset : span.end] == PAYLOAD[span.offset : span.end]

    @invariant()
    def places_are_apart(self) -> None:
        places = self.chunk._places
        assert places == sorted(places)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))
        assert len(places) == len(self.chunk._spans) + len(self.chunk._claims)

    @invariant()
    def a_complete_chunk_is_whole(self) -> None:
        if self.chunk.is_complete:
            assert self.chunk.payload == PAYLOAD
            assert self.chunk.crc32c == crc32c(PAYLOAD)
            assert not self.chunk._claims


Placing.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestPlacing = Placing.TestCase
