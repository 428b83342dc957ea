from __future__ import annotations

from base64 import b64decode

from skyplane_gateway.stores.azure.block_lists import (
    Block,
    BlockId,
    parts_of,
    read_block_list,
    write_block_list,
)

ONE, OTHER = "ab" * 16, "cd" * 16


def test_an_id_names_its_part() -> None:
    made = BlockId(ONE, 50_000, 0xE3069283, 1_700_000_000_123)
    assert BlockId.parse(made.text) == made
    assert len(b64decode(made.text)) <= 64


def test_ids_have_one_length() -> None:
    few, many = BlockId(ONE, 1, 0, 0), BlockId(OTHER, 50_000, 2**32 - 1, 2**60)
    assert len(few.text) == len(many.text)


def test_ids_of_other_programs_are_none_of_ours() -> None:
    assert [BlockId.parse(text) for text in ("", "AAAA", "not base64!", '"x"')] == [None] * 4


def test_parts_are_those_of_one_upload_and_the_newest() -> None:
    first, again = BlockId(ONE, 2, 7, 100), BlockId(ONE, 2, 8, 200)
    rows = [
        Block(again.text, 5),
        Block(first.text, 5),
        Block(BlockId(OTHER, 1, 1, 300).text, 5),
        Block(BlockId(ONE, 1, 9, 50).text, 4),
        Block("AAAA", 3),
    ]
    found = [(part.number, part.size_bytes, part.crc32c) for part in parts_of(ONE, rows)]
    assert found == [(1, 4, 9), (2, 5, 8)]


def test_block_lists() -> None:
    body = b"""\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?><BlockList>
    <UncommittedBlocks><Block><Name>Yg==</Name><Size>4</Size></Block></UncommittedBlocks>
    </BlockList>"""
    assert read_block_list(body) == (Block("Yg==", 4),)
    assert b"<Uncommitted>YQ==</Uncommitted><Uncommitted>Yg==" in write_block_list(["YQ==", "Yg=="])
