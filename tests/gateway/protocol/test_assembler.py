"""Chunks into frames and back: in any order, some twice, some broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.chunk_manifest import (
    ChunkManifest,
    ObjectEntry,
    PartEntry,
    encode_chunk_manifest,
    objects_of,
)
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import (
    MAX_PAYLOAD_BYTES,
    OpenedFrame,
    RawFrame,
    open_frame,
    seal_frame,
)
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader

CHUNK = ChunkId(b"fleet-01", b"T" * 16, 3, 7, 2, 5)


def part_manifest(length_bytes: int) -> ChunkManifest:
    return ChunkManifest(length_bytes, PartEntry("key", "upload", 1, 0))


def cut(payload: bytes, frame_bytes: int, pieces: Sequence[int] = ()) -> list[RawFrame]:
    """Frames of `payload`, fed in pieces of the given sizes and then the rest."""
    framer = ChunkFramer(CHUNK, part_manifest(len(payload)), max_payload_bytes=frame_bytes)
    frames: list[RawFrame] = []
    rest = memoryview(payload)
    for size in pieces:
        frames += framer.feed(rest[:size])
        rest = rest[size:]
    frames += framer.feed(rest)
    assert framer.is_complete
    assert framer.crc32c == crc32c(payload)
    return frames


def opened(frame: RawFrame) -> OpenedFrame:
    return open_frame(frame.header, memoryview(b"".join(frame.sealed)))


def made(
    number: int,
    offset: int,
    payload: bytes,
    *,
    length: int = 8,
    is_last: bool = False,
    manifest: ChunkManifest | None = None,
) -> OpenedFrame:
    """A frame that no framer would make, of a chunk of 8 bytes, with good checksums."""
    encoded = b"" if manifest is None else encode_chunk_manifest(manifest)
    header = FrameHeader(CHUNK, number, is_last=is_last)
    return opened(seal_frame(header, offset, length, [payload], crc32c(payload), encoded))


def assembler(length: int = 7) -> ChunkAssembler:
    return ChunkAssembler(CHUNK, length, bytearray(length))


# ----------------------------------------------------------------------- the framer


@given(
    payload=st.binary(max_size=400),
    frame_bytes=st.integers(1, 120),
    pieces=st.lists(st.integers(0, 90), max_size=12),
)
def test_pieces_of_any_size_become_full_frames(
    payload: bytes, frame_bytes: int, pieces: list[int]
) -> None:
    frames = [opened(frame) for frame in cut(payload, frame_bytes, pieces)]
    assert [frame.header.frame for frame in frames] == list(range(len(frames)))
    assert [frame.header.is_last for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert all(len(frame.payload) == frame_bytes for frame in frames[:-1])
    assert [bool(frame.manifest) for frame in frames] == [True] + [False] * (len(frames) - 1)
    assert b"".join(frame.payload for frame in frames) == payload


def test_empty_chunk_is_one_frame() -> None:
    framer = ChunkFramer(CHUNK, part_manifest(0))
    (frame,) = framer.feed(b"")
    assert frame.header == FrameHeader(CHUNK, 0, is_last=True)
    assert framer.is_complete
    assert framer.feed(b"") == []


def test_frame_0_leaves_room_for_its_manifest() -> None:
    entries = tuple(ObjectEntry(f"{n:04000}", 8000) for n in range(63))
    manifest = ChunkManifest(504_000 + 700_000, (*entries, ObjectEntry("last", 700_000)))
    framer = ChunkFramer(CHUNK, manifest)
    payload = bytes(1_204_000)
    frames = framer.feed(payload)
    sizes = [sum(len(buffer) for buffer in frame.sealed) + 52 for frame in frames]
    assert sizes[0] == 1 << 20, "full to the last byte"
    assert len(frames) == 2
    assert framer.crc32c == crc32c(payload)


def test_too_much_payload_is_refused() -> None:
    framer = ChunkFramer(CHUNK, part_manifest(10), max_payload_bytes=4)
    framer.feed(b"123456789")
    with pytest.raises(LocalProtocolError, match="only 1 missing"):
        framer.feed(b"ab")
    assert len(framer.feed(b"a")) == 1
    with pytest.raises(LocalProtocolError, match="only 0 missing"):
        framer.feed(b"b")


@pytest.mark.parametrize("frame_bytes", [0, MAX_PAYLOAD_BYTES + 1])
def test_frame_size_out_of_range(frame_bytes: int) -> None:
    with pytest.raises(LocalProtocolError, match="payload bytes"):
        ChunkFramer(CHUNK, part_manifest(10), max_payload_bytes=frame_bytes)


def test_chunk_of_too_many_frames() -> None:
    ChunkFramer(CHUNK, part_manifest(MAX_FRAMES), max_payload_bytes=1)
    with pytest.raises(LocalProtocolError, match=f"needs {MAX_FRAMES + 1} frames"):
        ChunkFramer(CHUNK, part_manifest(MAX_FRAMES + 1), max_payload_bytes=1)


# -------------------------------------------------------------------- the assembler


@given(
    payload=st.binary(max_size=300),
    frame_bytes=st.integers(1, 80),
    seed=st.integers(0, 1 << 32),
    copies=st.integers(1, 3),
)
def test_frames_in_any_order_and_duplicates_make_the_chunk(
    payload: bytes, frame_bytes: int, seed: int, copies: int
) -> None:
    frames = cut(payload, frame_bytes) * copies
    random.Random(seed).shuffle(frames)
    sink = assembler(len(payload))
    seen: set[int] = set()
    total = len(frames) // copies
    for frame in frames:
        seen.add(frame.header.frame)
        assert sink.add(opened(frame)) == (len(seen) == total)
    assert sink.payload == payload
    assert sink.payload.readonly
    assert sink.crc32c == crc32c(payload)
    assert sink.manifest == part_manifest(len(payload))
    assert sink.held_bytes == len(payload)


def test_the_error_names_a_corrupt_payload() -> None:
    frame = replace(opened(cut(b"payload", 7)[0]), payload=memoryview(b"paYload"))
    sink = assembler()
    with pytest.raises(FrameCorrupt, match="payload of frame 0 of chunk 5"):
        sink.add(frame)
    assert sink.manifest is None


def test_corrupt_duplicate_is_refused_and_does_no_harm() -> None:
    frame = opened(cut(b"payload", 7)[0])
    sink = assembler()
    assert sink.add(frame)
    with pytest.raises(FrameCorrupt):
        sink.add(replace(frame, payload=memoryview(b"paYload")))
    assert bytes(sink.payload) == b"payload"


def test_an_incomplete_chunk_has_no_payload_and_no_checksum() -> None:
    sink = assembler()
    for frame in cut(b"payload", 3)[1:]:
        assert not sink.add(opened(frame))
    for show in (lambda: sink.payload, lambda: sink.crc32c):
        with pytest.raises(LocalProtocolError, match="2 frames so far"):
            show()


@pytest.mark.parametrize(
    "other",
    [
        replace(CHUNK, transfer=b"U" * 16),
        replace(CHUNK, epoch=2),
        replace(CHUNK, route=8),
        replace(CHUNK, attempt=3),
        replace(CHUNK, chunk=6),
    ],
)
def test_a_frame_of_another_chunk_is_a_local_error(other: ChunkId) -> None:
    (frame,) = ChunkFramer(other, part_manifest(1)).feed(b"x")
    with pytest.raises(LocalProtocolError, match="does not belong"):
        assembler(1).add(opened(frame))
    assert frame.header.chunk_id == other


EIGHT = part_manifest(8)


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([made(0, 1, b"1234", manifest=EIGHT)], "starts at 1, not at 0"),
        ([made(0, 0, b"123456789", is_last=True, manifest=EIGHT)], "ends at 9 of 8"),
        ([made(0, 0, b"123", is_last=True, manifest=EIGHT)], "ends at 3 of 8"),
        ([made(0, 0, b"12345678", manifest=EIGHT)], "is not the last and ends at 8"),
        (
            [made(0, 0, b"1234", manifest=EIGHT), made(1, 4, b"56789", is_last=True)],
            "ends at 9 of 8",
        ),
        ([made(1, 4, b"56789", is_last=True)], "ends at 9 of 8"),
        ([made(2, 6, b"99")], "is not the last and ends at 8"),
        (
            [made(0, 0, b"1234", manifest=EIGHT), made(1, 5, b"678", is_last=True)],
            "starts at 5, not at 4",
        ),
        ([made(1, 4, b"56"), made(0, 0, b"123", manifest=EIGHT)], "ends at 3, not at 4"),
        ([made(1, 4, b"")], "is empty"),
        ([made(0, 0, b"", manifest=EIGHT)], "is empty"),
        (
            [made(1, 4, b"5678", is_last=True), made(3, 6, b"78", is_last=True)],
            "marked as the last",
        ),
        ([made(3, 6, b"7"), made(1, 4, b"5678", is_last=True)], "marked as the last"),
        ([made(1, 4, b"5678", is_last=True), made(3, 6, b"7")], "after frame 1, the last"),
        ([made(1, 4, b"56"), made(1, 4, b"57")], "came as"),
        (
            [
                made(0, 0, b"1234", manifest=EIGHT),
                made(0, 0, b"1234", manifest=part_manifest(9)),
            ],
            "two manifests",
        ),
        ([made(MAX_FRAMES, 4, b"5")], "limit of 16384 frames"),
        ([made(1, 4, b"5", length=9)], "is of a chunk of 9 bytes, not of 8"),
        ([made(1, 4, b"5"), made(1, 4, b"5", length=9)], "is of a chunk of 9 bytes, not of 8"),
        ([made(0, 0, b"1", manifest=part_manifest(9))], "has a manifest of 9 bytes, not of 8"),
    ],
)
def test_contradictory_frames_are_refused(frames: list[OpenedFrame], problem: str) -> None:
    sink = assembler(8)
    for frame in frames[:-1]:
        sink.add(frame)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=problem):
            sink.add(frames[-1])
    assert not sink.is_complete


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9), st.booleans())))
def test_a_complete_chunk_has_no_gap_and_no_overlap(
    tries: list[tuple[int, int, int, bool]],
) -> None:
    """Good checksums, arbitrary places: complete means every byte was sent exactly once."""
    sink = assembler(8)
    taken: dict[int, OpenedFrame] = {}
    for number, offset, size, is_last in tries:
        frame = made(
            number,
            offset,
            bytes([65 + number]) * size,
            is_last=is_last,
            manifest=EIGHT if number == 0 else None,
        )
        try:
            sink.add(frame)
        except RemoteProtocolError:
            continue
        taken.setdefault(number, frame)
    if sink.is_complete:
        expected = b"".join(taken[number].payload for number in range(len(taken)))
        assert sink.payload == expected
        assert len(expected) == 8


def test_a_longer_buffer_from_a_pool_is_cut_to_the_chunk() -> None:
    sink = ChunkAssembler(CHUNK, 10, bytearray(64))
    for frame in reversed(cut(b"0123456789", 4)):
        sink.add(opened(frame))
        assert sink.held_bytes == 10
    assert bytes(sink.payload) == b"0123456789"


def test_objects_of_a_batch() -> None:
    entries = (ObjectEntry("a", 3), ObjectEntry("empty", 0), ObjectEntry("b", 4))
    frames = ChunkFramer(CHUNK, ChunkManifest(7, entries), max_payload_bytes=2).feed(b"aaabbbb")
    sink = assembler()
    for frame in reversed(frames):
        sink.add(opened(frame))
    assert sink.manifest is not None
    found = objects_of(sink.manifest, sink.payload)
    assert [(entry.key, bytes(data)) for entry, data in found] == [
        ("a", b"aaa"),
        ("empty", b""),
        ("b", b"bbbb"),
    ]


def test_a_part_has_no_objects() -> None:
    sink = assembler()
    sink.add(opened(cut(b"payload", 7)[0]))
    assert sink.manifest is not None
    assert list(objects_of(sink.manifest, sink.payload)) == []
