"""The sealed body of a frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.gateway.protocol.lab import bitwise_crc32c

from skyplane_gateway.common.checksum import combine, crc32c
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.frames import (
    FRAME_OVERHEAD_BYTES,
    MAX_PAYLOAD_BYTES,
    RawFrame,
    open_frame,
    seal_frame,
)
from skyplane_gateway.protocol.limits import MAX_MANIFEST, MAX_MESSAGE
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.sealing import SEAL_BYTES, TAG_BYTES

PAYLOAD = b"123456789"
CHUNK = ChunkId(b"fleet-01", b"T" * 16, 3, 7, 2, 5)
SECOND = FrameHeader(CHUNK, 1, True)
FIRST = replace(SECOND, frame=0)
PROLOGUE, TAG = "0000" + "00" * 16 + "00" * 8, "00" * 16
MANIFEST = bytes.fromhex("0000000000000009 01 0005 612f622e63 0002 7531 00000001 0000000000000000")
SECOND_HEX = (
    PROLOGUE
    + "4465522e e3069283 0000000000000040 0000000000000049 00000000"
    + "313233343536373839"
    + TAG
)
FIRST_HEX = (
    PROLOGUE
    + "4beb1cc8 e3069283 0000000000000000 0000000000000009 00000020"
    + MANIFEST.hex()
    + "313233343536373839"
    + TAG
)


def joined(frame: RawFrame) -> memoryview:
    return memoryview(b"".join(frame.sealed))


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"123456789", bytes(range(256)) * 3], ids=["0", "1", "9", "768"]
)
def test_checksum_is_crc32c(data: bytes) -> None:
    assert crc32c(data) == bitwise_crc32c(data)
    for cut in range(0, len(data) + 1, 5):
        left, right = data[:cut], data[cut:]
        assert crc32c(memoryview(right), crc32c(left)) == crc32c(data)
        assert combine(crc32c(left), crc32c(right), len(right)) == crc32c(data)


@pytest.mark.parametrize(
    ("header", "offset", "manifest", "data"),
    [(SECOND, 64, b"", SECOND_HEX), (FIRST, 0, MANIFEST, FIRST_HEX)],
)
def test_bytes_of_the_specification(
    header: FrameHeader, offset: int, manifest: bytes, data: str
) -> None:
    pieces, end = [PAYLOAD[:4], PAYLOAD[4:]], offset + 9
    frame = seal_frame(header, offset, end, pieces, 0xE3069283, manifest)
    assert joined(frame) == bytes.fromhex(data)
    opened = open_frame(header, memoryview(bytes.fromhex(data)))
    assert (opened.offset, opened.chunk_bytes, opened.payload_crc32c) == (offset, end, 0xE3069283)
    assert (bytes(opened.manifest), bytes(opened.payload)) == (manifest, PAYLOAD)


def test_opening_copies_no_payload() -> None:
    received = bytearray(joined(seal_frame(SECOND, 64, 73, [PAYLOAD], 0)))
    opened = open_frame(SECOND, memoryview(received))
    received[-TAG_BYTES - 1] = 0
    assert opened.payload[-1] == 0


def test_every_flipped_bit_outside_the_payload_is_refused() -> None:
    good = bytes.fromhex(FIRST_HEX)
    payload = range(len(good) - TAG_BYTES - len(PAYLOAD), len(good) - TAG_BYTES)
    for position in range(len(good) * 8):
        if position // 8 in payload:
            continue
        bad = bytearray(good)
        bad[position // 8] ^= 1 << (position % 8)
        with pytest.raises(RemoteProtocolError):
            open_frame(FIRST, memoryview(bad))


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, chunk_id=replace(CHUNK, fleet=b"fleet-02")),
        replace(FIRST, chunk_id=replace(CHUNK, transfer=b"U" * 16)),
        replace(FIRST, chunk_id=replace(CHUNK, epoch=4)),
        replace(FIRST, chunk_id=replace(CHUNK, route=6)),
        replace(FIRST, chunk_id=replace(CHUNK, attempt=0)),
        replace(FIRST, chunk_id=replace(CHUNK, chunk=4)),
        replace(FIRST, frame=1),
        replace(FIRST, is_last=False),
    ],
)
def test_outer_header_belongs_to_its_frame(other: FrameHeader) -> None:
    with pytest.raises(FrameCorrupt, match="checksum"):
        open_frame(other, memoryview(bytes.fromhex(FIRST_HEX)))


def test_every_cut_is_refused() -> None:
    whole = memoryview(bytes.fromhex(FIRST_HEX))
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            open_frame(FIRST, whole[:size])


@pytest.mark.parametrize("size", [0, 1, 27])
def test_body_without_room_for_its_head_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"frame body of {size} bytes is too short"):
        open_frame(SECOND, memoryview(bytes(SEAL_BYTES + size)))


@pytest.mark.parametrize(("at", "value"), [(1, 1), (2, 1), (25, 1), (-1, 1), (-16, 1)])
def test_the_plain_suite_has_zeros_in_its_other_fields(at: int, value: int) -> None:
    bad = bytearray.fromhex(SECOND_HEX)
    bad[at] = value
    with pytest.raises(RemoteProtocolError, match="not encrypted" if at == 1 else "not zero"):
        open_frame(SECOND, memoryview(bad))


def forged(header: FrameHeader, fields: str, checksum: Callable[[bytes], int]) -> memoryview:
    """A frame of any body head, with a good checksum over it."""
    body = bytes.fromhex(fields)
    length = 44 + SEAL_BYTES + 4 + len(body)
    outer = bytes.fromhex(
        f"0401 0003 {length:08x}"
        + b"fleet-01".hex()
        + "54" * 16
        + "00000003 0007 0002 0000000000000005"
    ) + header.frame.to_bytes(4, "big")
    check = checksum(outer + body)
    return memoryview(bytes.fromhex(PROLOGUE + f"{check:08x}") + body + bytes(16))


@pytest.mark.parametrize(
    ("header", "fields", "problem"),
    [
        (FIRST, "00000000 0000000000000000 0000000000000009 00000000", "with a manifest of 0"),
        (SECOND, "00000000 0000000000000000 0000000000000009 00000001 00", "with a manifest of 1"),
        (
            SECOND,
            "00000000 0000000000000000 0000000000000009 00000002 00",
            "manifest of 2 bytes in",
        ),
        (SECOND, "00000000 0000000000000000 0000000000000009 ffffffff", "the limit is"),
    ],
)
def test_invalid_bytes_from_a_peer_are_a_remote_error(
    header: FrameHeader, fields: str, problem: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        open_frame(header, forged(header, fields, bitwise_crc32c))


def test_manifest_beyond_its_limit_is_refused() -> None:
    size = MAX_MANIFEST + 1
    fields = f"00000000 0000000000000000 0000000000000009 {size:08x}" + "00" * size
    with pytest.raises(RemoteProtocolError, match=f"manifest of {size} bytes"):
        open_frame(FIRST, forged(FIRST, fields, crc32c))


def test_only_frame_0_has_the_manifest() -> None:
    with pytest.raises(LocalProtocolError, match="only frame 0"):
        seal_frame(FIRST, 0, 9, [PAYLOAD], 0)
    with pytest.raises(LocalProtocolError, match="only frame 0"):
        seal_frame(SECOND, 0, 9, [PAYLOAD], 0, MANIFEST)


@pytest.mark.parametrize(
    ("offset", "length", "crc"), [(1 << 64, 9, 0), (0, 1 << 64, 0), (0, 9, -1)]
)
def test_a_number_that_does_not_fit_is_a_local_error(offset: int, length: int, crc: int) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        seal_frame(SECOND, offset, length, [PAYLOAD], crc)


def test_largest_frame_is_1_mib() -> None:
    frame = seal_frame(SECOND, 0, 9, [bytes(MAX_PAYLOAD_BYTES)], 0)
    assert len(joined(frame)) + 52 == MAX_MESSAGE
    assert MAX_MESSAGE - FRAME_OVERHEAD_BYTES == MAX_PAYLOAD_BYTES
    with pytest.raises(LocalProtocolError, match="limit"):
        seal_frame(SECOND, 0, 9, [bytes(MAX_PAYLOAD_BYTES), b"x"], 0)
    assert MAX_PAYLOAD_BYTES - MAX_MANIFEST > MAX_MESSAGE // 2 - 200
