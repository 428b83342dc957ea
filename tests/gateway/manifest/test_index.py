"""The index of a segment: what is written comes back, and damage never becomes another row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import ManifestUnreadable
from skyplane_gateway.manifest.index import Row, decode_block, encode_index

TEXT = st.text(max_size=8)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """In the order of their keys. Some sources have the key at their end, some are the same."""
    found = []
    for key in sorted(draw(st.sets(TEXT, max_size=12))):
        copy = draw(TEXT)
        found.append(
            Row(
                key,
                copy,
                draw(st.sampled_from(("", "s3://a/", "/"))),
                draw(st.sampled_from((key, f"p/{key}", "", f"{key}/"))) + draw(TEXT),
                draw(st.sampled_from((copy, "", '"v"'))),
                draw(st.none() | st.integers(0, 2**32 - 1)),
                draw(st.integers(0, 2**63 - 1)),
            )
        )
    return found


@dataclass(frozen=True)
class Encoded:
    body: bytes
    stores: tuple[str, ...]
    blocks: list[tuple[str, int]]

    def decoded(self) -> list[Row]:
        offsets = [*(offset for _, offset in self.blocks), len(self.body)]
        return [
            row
            for start, end in pairwise(offsets)
            for row in decode_block(self.body[start:end], self.stores)
        ]


@given(rows())
@settings(max_examples=150, deadline=None)
def test_rows_come_back(written: list[Row]) -> None:
    encoded = Encoded(*encode_index(written, len(written)))
    assert encoded.decoded() == written
    assert [first for first, _ in encoded.blocks] == [row.key for row in written[:1]]


def many(count: int) -> list[Row]:
    return [
        Row(f"k{at:06}", f'"{at}"', "s3://a/", f"p/k{at:06}", f"v{at}", at, at)
        for at in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 9000])
def test_a_block_begins_at_the_key_that_the_pointer_has(count: int) -> None:
    encoded = Encoded(*encode_index(many(count), count))
    assert encoded.decoded() == many(count)
    assert [first for first, _ in encoded.blocks] == [f"k{at:06}" for at in range(0, count, 4096)]


def test_damage_at_any_byte_is_found() -> None:
    written = many(40)
    body, stores, _ = encode_index(written, len(written))
    for at in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[at] ^= 1 << bit
            try:
                found = list(decode_block(bytes(damaged), stores))
            except ManifestUnreadable:
                continue
            assert found == written, at


def test_a_block_that_is_cut_anywhere_is_found() -> None:
    body, stores, _ = encode_index(many(40), 40)
    for length in range(len(body)):
        with pytest.raises(ManifestUnreadable):
            list(decode_block(body[:length], stores))


def test_a_block_whose_stores_are_unknown_is_damaged() -> None:
    body, _, _ = encode_index(many(3), 3)
    with pytest.raises(ManifestUnreadable):
        list(decode_block(body, ()))
