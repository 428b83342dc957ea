"""Suite 1 of the wire: what an attacker between the ends can and cannot do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, strategies as st

from skyplane_gateway.protocol.aes_gcm import AesGcmSealer, sealing_of
from skyplane_gateway.protocol.errors import (
    FrameAltered,
    FrameCorrupt,
    LocalProtocolError,
    NotEncrypted,
)
from skyplane_gateway.protocol.frames import open_frame, seal_frame
from skyplane_gateway.protocol.messages import (
    FRAME_HEADER_BYTES,
    ChunkId,
    FrameHeader,
    pack_frame_header,
)
from skyplane_gateway.protocol.receipt import EntryResult, Receipt, open_receipt, seal_receipt
from skyplane_gateway.protocol.sealing import PROLOGUE_BYTES, SEAL_BYTES, unpack_prologue

KEY = bytes(range(32))
SOURCE, SINK = b"incarnation-of-a", b"incarnation-of-b"
CHUNK = ChunkId(b"fleet-01", b"T" * 16, 3, 7, 1, 5)
HEADER = FrameHeader(CHUNK, 1, is_last=True)
PAYLOAD = b"the payload of a frame"
DURABLE = Receipt(3, entries=(EntryResult(None, "e", 1),))


def sealed_frame(sealer: AesGcmSealer | None = None, header: FrameHeader = HEADER) -> bytearray:
    sealer = sealer or AesGcmSealer(KEY, SOURCE, b"frames")
    return bytearray(b"".join(seal_frame(header, 64, 73, [PAYLOAD], 0, sealer=sealer).sealed))


def sink() -> AesGcmSealer:
    return AesGcmSealer(KEY, SINK, b"frames")


def test_the_sink_opens_what_the_source_has_sealed() -> None:
    sealed = sealed_frame()
    assert PAYLOAD not in sealed
    assert bytes(open_frame(HEADER, memoryview(sealed), sink()).payload) == PAYLOAD


def test_the_construction_is_that_of_the_specification() -> None:
    """docs/internals/wire-protocol.md, done again by hand."""
    sealed = sealed_frame()
    info = b"skyplane wire v1 aes-256-gcm frames " + (3).to_bytes(4, "big")
    subkey = HKDF(SHA256(), 32, salt=SOURCE, info=info).derive(KEY)
    outer = pack_frame_header(HEADER, len(sealed))
    assert bytes(sealed[:26]) == b"\0\1" + SOURCE + bytes(8)
    body = AESGCM(subkey).decrypt(bytes(12), bytes(sealed[26:]), outer)
    assert body.endswith(PAYLOAD)


def test_no_changed_byte_is_accepted() -> None:
    sealed = sealed_frame()
    for place in range(len(sealed)):
        bad = bytearray(sealed)
        bad[place] ^= 0x40
        with pytest.raises(FrameAltered):
            open_frame(HEADER, memoryview(bad), sink())


@pytest.mark.parametrize(
    "other",
    [
        replace(HEADER, frame=2),
        replace(HEADER, is_last=False),
        replace(HEADER, chunk_id=replace(CHUNK, fleet=b"fleet-02")),
        replace(HEADER, chunk_id=replace(CHUNK, transfer=b"U" * 16)),
        replace(HEADER, chunk_id=replace(CHUNK, epoch=4)),
        replace(HEADER, chunk_id=replace(CHUNK, route=8)),
        replace(HEADER, chunk_id=replace(CHUNK, attempt=2)),
        replace(HEADER, chunk_id=replace(CHUNK, chunk=6)),
    ],
)
def test_no_changed_field_of_the_outer_header_is_accepted(other: FrameHeader) -> None:
    with pytest.raises(FrameCorrupt, match="altered"):
        open_frame(other, memoryview(sealed_frame()), sink())


def test_plain_and_unknown_suites_are_refused() -> None:
    plain = b"".join(seal_frame(HEADER, 64, 73, [PAYLOAD], 0).sealed)
    with pytest.raises(NotEncrypted, match="plain text"):
        open_frame(HEADER, memoryview(plain), sink())
    unknown = sealed_frame()
    unknown[1] = 9
    with pytest.raises(FrameAltered, match="suite 9"):
        open_frame(HEADER, memoryview(unknown), sink())
    with pytest.raises(FrameAltered, match="too short"):
        sink().open(pack_frame_header(HEADER, SEAL_BYTES), memoryview(bytes(SEAL_BYTES - 1)))


def test_another_key_opens_nothing() -> None:
    with pytest.raises(FrameCorrupt):
        open_frame(HEADER, memoryview(sealed_frame()), AesGcmSealer(bytes(32), SINK, b"frames"))


def test_frames_and_receipts_do_not_open_each_other() -> None:
    """A relay that sends the source's own message back must not acknowledge it."""
    source, other = sealing_of(KEY, SOURCE), sealing_of(KEY, SINK)
    receipt = b"".join(seal_receipt(CHUNK, DURABLE, other.receipts).sealed)
    assert open_receipt(CHUNK, memoryview(receipt), source.receipts) == DURABLE
    forged = b"".join(seal_receipt(CHUNK, DURABLE, source.frames).sealed)
    with pytest.raises(FrameCorrupt):
        open_receipt(CHUNK, memoryview(forged), source.receipts)
    with pytest.raises(NotEncrypted, match="plain text"):
        open_receipt(
            CHUNK, memoryview(b"".join(seal_receipt(CHUNK, DURABLE).sealed)), source.receipts
        )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), max_size=60))
def test_no_nonce_is_used_twice_with_one_subkey(messages: list[tuple[str, int]]) -> None:
    """Whatever two senders seal, in whatever epochs."""
    senders = {name: AesGcmSealer(KEY, name.encode() * 16, b"frames") for name in "ab"}
    used = set()
    for name, epoch in messages:
        header = FrameHeader(replace(CHUNK, epoch=epoch), 1, is_last=True)
        _, incarnation, counter, _ = unpack_prologue(
            memoryview(sealed_frame(senders[name], header))
        )
        used.add((incarnation, epoch, counter))
    assert len(used) == len(messages)


def test_two_sealings_of_one_frame_differ() -> None:
    sealer = AesGcmSealer(KEY, SOURCE, b"frames")
    first, second = sealed_frame(sealer), sealed_frame(sealer)
    assert first[PROLOGUE_BYTES:] != second[PROLOGUE_BYTES:]


def test_forged_incarnations_take_no_memory() -> None:
    opener = sink()
    sealed = sealed_frame()
    for number in range(2000):
        sealed[2:18] = number.to_bytes(16, "big")
        with pytest.raises(FrameCorrupt):
            open_frame(HEADER, memoryview(sealed), opener)
    assert len(opener._subkeys) <= 256


@pytest.mark.parametrize(("key", "incarnation"), [(b"short", SOURCE), (KEY, b"short")])
def test_keys_and_incarnations_have_their_length(key: bytes, incarnation: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        AesGcmSealer(key, incarnation, b"frames")


def test_the_sealed_frame_keeps_its_size() -> None:
    plain = b"".join(seal_frame(HEADER, 64, 73, [PAYLOAD], 0).sealed)
    assert len(sealed_frame()) == len(plain) <= FRAME_HEADER_BYTES + 200
