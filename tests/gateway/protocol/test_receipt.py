"""Receipts: the bytes of the specification, round trips, and no loss that looks like success."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.gateway.protocol.lab import bitwise_crc32c

from skyplane_gateway.common.errors import StaleEpoch, StoreError, StoreUnavailable
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.limits import MAX_ENTRIES, MAX_RECEIPT
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import EntryResult, Receipt, open_receipt, seal_receipt

HEADER = ChunkId(b"fleet-01", b"T" * 16, 3, 7, 2, 5)
DURABLE = Receipt(3, entries=(EntryResult(None, '"e1"', 0xE3069283),))
REFUSED = Receipt(3, StaleEpoch("old").to_dict())
REFUSED_JSON = (
    b'{"epoch":3,"error":{"code":"stale-epoch","message":"old","is_permanent":true},"entries":[]}'
)

texts = st.text(st.characters(codec="utf-8"), max_size=60)
errors = st.fixed_dictionaries({"code": texts, "message": texts, "is_permanent": st.booleans()})
entries = st.builds(EntryResult, st.none() | errors, texts, st.integers(0, (1 << 32) - 1))


def sealed_bytes(receipt: Receipt) -> memoryview:
    return memoryview(b"".join(seal_receipt(HEADER, receipt).sealed))


def forged(body: bytes) -> memoryview:
    """A sealed receipt of any body, with a good checksum."""
    outer = bytes.fromhex(
        f"05000003 {40 + 42 + 4 + len(body):08x}"
        + b"fleet-01".hex()
        + "54" * 16
        + "00000003 0007 0002 0000000000000005"
    )
    check = bitwise_crc32c(outer + body).to_bytes(4, "big")
    # Suite, incarnation and counter; the tag.
    return memoryview(bytes(2 + 16 + 8) + check + body + bytes(16))


def test_bytes_of_the_specification() -> None:
    assert sealed_bytes(REFUSED) == forged(REFUSED_JSON)


@given(st.integers(0, (1 << 32) - 1), st.none() | errors, st.lists(entries, max_size=6))
def test_round_trip(epoch: int, error: dict[str, Any] | None, results: list[EntryResult]) -> None:
    receipt = Receipt(epoch, error, tuple(results))
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


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"error": None}, "lacks epoch"),
        ({"epoch": 3, "status": 1}, "has no status"),
        ({"epoch": 3, "entries": [{"etag": "e"}]}, "lacks error"),
        ({"epoch": 3, "entries": [{"error": ""}]}, "must be a JSON object"),
        ([], "must be a JSON object"),
    ],
)
def test_an_invalid_document_from_a_peer_is_a_remote_error(body: object, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        open_receipt(HEADER, forged(json.dumps(body).encode()))


def test_a_receipt_beyond_its_limit_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError, match="the limit is"):
        seal_receipt(HEADER, replace(DURABLE, entries=(EntryResult(None, "e" * MAX_RECEIPT),)))


@pytest.mark.parametrize("character", ["é", "\0", "\U0001f600", "\udcff"])
def test_messages_are_cut_so_that_every_refusal_fits(character: str) -> None:
    """Objects that failed with long messages must not make the receipt unsendable."""
    entry = EntryResult(StoreUnavailable(character * 2000).to_dict(), "e" * 1024, 1)
    receipt = Receipt(3, StoreError("m" * 3000).to_dict(), (entry,) * MAX_ENTRIES)
    opened = open_receipt(HEADER, sealed_bytes(receipt))
    found = [opened.error, *(row.error for row in opened.entries)]
    assert [len((error or {})["message"]) for error in found] == [500] * (1 + MAX_ENTRIES)
