"""Frames whose payload a sink receives straight into the memory of their chunk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.gateway.sink.test_receiver import CAPACITY, CHUNK, Place, chunk, place

from skyplane_gateway.common.errors import GatewayDraining
from skyplane_gateway.protocol.aes_gcm import sealing_of
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, ObjectEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import Claim, RawFrame
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.sink.receiver import SinkTransfer
from skyplane_gateway.stores.base import read_object

BODY = bytes(range(60))
NO_TAG = memoryview(bytes(16))


def frames_of(which: ChunkId, sealing: Sealing = UNSEALED, body: bytes = BODY) -> list[RawFrame]:
    manifest = ChunkManifest(len(body), (ObjectEntry("key", len(body)),))
    framer = ChunkFramer(which, manifest, sealer=sealing.frames, max_payload_bytes=20)
    return framer.feed(body)


def claimed(here: Place, frame: RawFrame) -> Claim | None:
    sealed = memoryview(b"".join(frame.sealed))
    return here.sink.claim_frame(frame.header, sealed[:-20], len(sealed))


def sent(here: Place, frame: RawFrame) -> None:
    here.sink.on_frame(frame.header, memoryview(b"".join(frame.sealed)))


async def test_a_chunk_whose_payloads_arrive_in_their_places_is_written() -> None:
    async with place() as here:
        for frame, start in zip(frames_of(CHUNK), (0, 20, 40), strict=True):
            claim = claimed(here, frame)
            assert claim is not None
            assert claim.view is not None
            claim.view[:] = BODY[start : start + 20]
            here.sink.on_placed(claim, NO_TAG)
        await here.sink.drain()
        assert here.last_receipt().entries[0].error is None
        assert read_object(here.store, "key", max_bytes=60)[1] == BODY
        assert here.sink.held_bytes == 0


async def test_a_damaged_payload_ends_its_chunk_and_the_next_attempt_is_taken() -> None:
    async with place() as here:
        first, *_ = frames_of(CHUNK)
        claim = claimed(here, first)
        assert claim is not None
        here.sink.on_placed(claim, NO_TAG)
        assert here.refusal() == "checksum-mismatch"
        assert here.sink.held_bytes == 0
        for frame in frames_of(chunk(1, attempt=2)):
            sent(here, frame)
        await here.sink.drain()
        assert read_object(here.store, "key", max_bytes=60)[1] == BODY


async def test_a_chunk_that_is_being_written_gives_no_place() -> None:
    """A second copy must not write over what the store still reads."""
    async with place() as here:
        frames = frames_of(CHUNK)
        for frame in frames:
            sent(here, frame)
        assert claimed(here, frames[0]) is None
        await here.sink.drain()
        assert claimed(here, frames[0]) is None
        assert len(here.receipts) == 1


@pytest.mark.parametrize("end", ["route", "detach", "drain", "newer attempt"])
async def test_a_chunk_that_is_given_up_takes_its_places_back(end: str) -> None:
    async with place() as here:
        claim = claimed(here, frames_of(CHUNK)[0])
        assert claim is not None
        if end == "route":
            here.sink.route_is_down(CHUNK.route)
        elif end == "detach":
            await here.sink.detach(CHUNK.transfer)
        elif end == "drain":
            here.sink.hand_back(GatewayDraining("it ends"))
        else:
            sent(here, frames_of(chunk(1, attempt=2))[0])
        assert claim.view is None
        assert here.sink.held_bytes == (60 if end == "newer attempt" else 0)


async def test_late_frames_of_an_earlier_attempt_take_no_memory_again() -> None:
    async with place() as here:
        early, late = frames_of(CHUNK)[:2]
        sent(here, early)
        sent(here, frames_of(chunk(1, attempt=2))[0])
        assert claimed(here, late) is None
        sent(here, late)
        assert here.sink.held_bytes == 60
        assert here.receipts == []


@pytest.mark.parametrize("why", ["unknown transfer", "older epoch", "draining", "full", "sealed"])
async def test_a_head_that_is_not_admitted_takes_no_memory_and_is_answered_once_whole(
    why: str,
) -> None:
    key = sealing_of(bytes(32), bytes(16))
    async with place() as here:
        destination = here.sink._transfers[CHUNK.transfer].destination
        which = CHUNK
        if why == "unknown transfer":
            which = ChunkId(bytes(8), b"another transfer", 1, 0, 1, 1)
        elif why == "older epoch":
            here.sink.attach(CHUNK.transfer, SinkTransfer(2, destination))
        elif why == "draining":
            here.sink.hand_back(GatewayDraining("it ends"))
        elif why == "full":
            here.begin(9, CAPACITY - 30)
        else:
            here.sink.attach(CHUNK.transfer, SinkTransfer(1, destination, key))
        held, (frame, *_) = here.sink.held_bytes, frames_of(which)
        assert claimed(here, frame) is None
        assert (here.sink.held_bytes, here.receipts) == (held, [])
        sent(here, frame)
        assert len(here.receipts) == 1


async def test_an_encrypted_frame_that_was_altered_changes_no_byte_that_was_accepted() -> None:
    sealing = sealing_of(bytes(32), bytes(16))
    with ThreadPoolExecutor(1) as threads:
        here = Place(threads)
        destination = here.sink._transfers[CHUNK.transfer].destination
        here.sink.attach(CHUNK.transfer, SinkTransfer(1, destination, sealing))
        first, second, _ = frames_of(CHUNK, sealing)
        sent(here, first)
        assembler = here.sink._assemblers[CHUNK]
        before = bytes(memoryview(assembler.buffer)[:20])
        for frame in (first, second):
            bad = bytearray(b"".join(frame.sealed))
            bad[-20] ^= 1
            here.sink.on_frame(frame.header, memoryview(bad))
            assert bytes(memoryview(assembler.buffer)[:20]) == before
        assert len(here.receipts) == 1
        raw = here.receipts[0]
        assert raw.header == CHUNK
        assert here.sink.held_bytes == 0
