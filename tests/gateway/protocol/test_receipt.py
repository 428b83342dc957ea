"""Receipts: hand-written bytes, round trips, and nothing that could turn loss into success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.protocol.lab import bitwise_crc32c

from skyplane_gateway.protocol import (
    ChunkId,
    EntryResult,
    FrameCorrupt,
    LocalProtocolError,
    Receipt,
    ReceiptStatus,
    RemoteProtocolError,
    open_receipt,
    seal_receipt,
)
from skyplane_gateway.protocol.limits import MAX_ENTRIES, MAX_RECEIPT

HEADER = ChunkId(b"fleet-01", b"T" * 16, 3, 7, 2, 5)
DURABLE = Receipt(
    3,
    ReceiptStatus.DURABLE,
    entries=(EntryResult(ReceiptStatus.DURABLE, '"e1"', 0xE3069283, 9),),
)
REFUSED = Receipt(3, ReceiptStatus.REFUSED, "stale-epoch", "old", True)
#: Suite, incarnation and counter; the tag.
PROLOGUE, TAG = "0000" + "00" * 16 + "00" * 8, "00" * 16
DURABLE_HEX = (
    PROLOGUE
    + "d3649a2a 00000003 01 00 0000 0000 0001"
    + "01 00 0004 22653122 e3069283 0000000000000009 0000 0000"
    + TAG
)
REFUSED_HEX = (
    PROLOGUE + "1ab305fe 00000003 02 01 000b 7374616c652d65706f6368 0003 6f6c64 0000" + TAG
)

texts = st.text(st.characters(codec="utf-8"), max_size=60)
entries = st.builds(
    EntryResult,
    st.sampled_from(ReceiptStatus),
    texts,
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1),
    texts.map(lambda text: text.encode()[:64].decode(errors="ignore")),
    texts,
    st.booleans(),
)


def sealed_bytes(receipt: Receipt) -> memoryview:
    return memoryview(b"".join(seal_receipt(HEADER, receipt).sealed))


@pytest.mark.parametrize(("receipt", "data"), [(DURABLE, DURABLE_HEX), (REFUSED, REFUSED_HEX)])
def test_bytes_of_the_specification(receipt: Receipt, data: str) -> None:
    assert sealed_bytes(receipt) == bytes.fromhex(data)
    assert open_receipt(HEADER, memoryview(bytes.fromhex(data))) == receipt


@given(st.integers(0, (1 << 32) - 1), st.lists(entries, max_size=6), st.booleans())
def test_round_trip(epoch: int, results: list[EntryResult], is_permanent: bool) -> None:
    is_durable = bool(results) and all(e.status is ReceiptStatus.DURABLE for e in results)
    status = ReceiptStatus.DURABLE if is_durable else ReceiptStatus.REFUSED
    receipt = Receipt(epoch, status, "code", "message", is_permanent, tuple(results))
    assert open_receipt(HEADER, sealed_bytes(receipt)) == receipt


@pytest.mark.parametrize("receipt", [DURABLE, REFUSED])
def test_every_flipped_bit_is_refused(receipt: Receipt) -> None:
    good = bytes(sealed_bytes(receipt))
    for position in range(len(good) * 8):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << (position % 8)
        with pytest.raises(RemoteProtocolError):
            open_receipt(HEADER, memoryview(bad))


@pytest.mark.parametrize(
    "other",
    [
        replace(HEADER, transfer=b"U" * 16),
        replace(HEADER, epoch=2),
        replace(HEADER, route=8),
        replace(HEADER, attempt=3),
        replace(HEADER, chunk=6),
    ],
)
def test_receipt_of_another_chunk_is_refused(other: ChunkId) -> None:
    with pytest.raises(FrameCorrupt, match=f"chunk {other.chunk}"):
        open_receipt(other, sealed_bytes(DURABLE))


def test_every_cut_is_refused() -> None:
    whole = sealed_bytes(DURABLE)
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            open_receipt(HEADER, whole[:size])


def forged(body: str, checksum: Callable[[bytes], int]) -> memoryview:
    """A sealed receipt of any body, with a good checksum."""
    raw = bytes.fromhex(body)
    length = 40 + 42 + 4 + len(raw)
    outer = bytes.fromhex(
        f"05000001 {length:08x}"
        + b"fleet-01".hex()
        + "54" * 16
        + "00000003 0007 0002 0000000000000005"
    )
    check = checksum(outer + raw)
    return memoryview(bytes.fromhex(PROLOGUE + f"{check:08x}") + raw + bytes(16))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("00000003 00 00 0000 0000 0000", "status 0"),
        ("00000003 03 00 0000 0000 0000", "status 3"),
        ("00000003 02 02 0000 0000 0000", "permanent is 2"),
        ("00000003 01 00 0000 0000 0000", "DURABLE without an entry"),
        (
            "00000003 01 00 0000 0000 0001 02 00 0000 00000000 0000000000000000 0000 0000",
            "DURABLE with a refused entry",
        ),
        ("00000003 02 00 0041" + "61" * 65 + "0000 0000", "code has 65 bytes"),
        ("00000003 02 00 0000 0401" + "61" * 1025 + "0000", "message has 1025 bytes"),
        ("00000003 02 00 0000 0000 1001", "4097 entries"),
        ("00000003 02 00 0000 0000 0001", "ends inside status"),
        ("00000003 02 00 0000 0000 0000 00", "1 bytes too many"),
    ],
)
def test_invalid_bytes_from_a_peer_are_a_remote_error(body: str, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        open_receipt(HEADER, forged(body, bitwise_crc32c))


@pytest.mark.parametrize(
    ("receipt", "problem"),
    [
        (Receipt(3, ReceiptStatus.DURABLE), "without an entry"),
        (
            replace(DURABLE, entries=(EntryResult(ReceiptStatus.REFUSED),)),
            "a refused entry",
        ),
        (replace(REFUSED, epoch=-1), "epoch"),
        (replace(REFUSED, code="c" * 65), "code has 65"),
        (
            replace(DURABLE, entries=(EntryResult(ReceiptStatus.DURABLE, "e" * 1025),)),
            "etag has 1025",
        ),
        (
            replace(REFUSED, entries=(EntryResult(ReceiptStatus.REFUSED),) * (MAX_ENTRIES + 1)),
            "4097 entries",
        ),
        (
            replace(DURABLE, entries=(EntryResult(ReceiptStatus.DURABLE, "e" * 1024),) * 600),
            "the limit is",
        ),
    ],
)
def test_invalid_values_are_a_local_error(receipt: Receipt, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        seal_receipt(HEADER, receipt)


def test_messages_are_cut_so_that_every_refusal_fits() -> None:
    """4096 objects that failed with long messages must not make the receipt unsendable."""
    entry = EntryResult(ReceiptStatus.REFUSED, '"e"', 1, 2, "store-unavailable", "é" * 2000)
    receipt = Receipt(3, ReceiptStatus.REFUSED, "store-error", "m" * 3000, False, (entry,) * 4096)
    sealed = sealed_bytes(receipt)
    assert MAX_RECEIPT - 8192 < len(sealed) <= MAX_RECEIPT - 48
    opened = open_receipt(HEADER, sealed)
    assert opened.message == "m" * 1024
    assert {e.code for e in opened.entries} == {"store-unavailable"}
    assert all(e.message and set(e.message) == {"é"} for e in opened.entries)


def test_a_message_alone_keeps_its_full_length() -> None:
    entry = EntryResult(ReceiptStatus.REFUSED, code="c", message="x" * 1500)
    receipt = Receipt(3, ReceiptStatus.REFUSED, entries=(entry,))
    assert open_receipt(HEADER, sealed_bytes(receipt)).entries[0].message == "x" * 1024
