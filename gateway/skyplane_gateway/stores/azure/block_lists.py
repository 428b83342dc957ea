"""Ids of staged blocks, and the XML of block lists.

An id names the upload, the number and the CRC32C of its part, so that any process can list the
parts of an upload. The time tells which block is the newest of a part that was sent again.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from skyplane_gateway.common.objects import PartInfo
from skyplane_gateway.stores.response_validation import NoAnswer, is_number, read_xml

#: Upload, milliseconds since 1970, number, CRC32C. All ids of a blob must have one length.
_LAYOUT: Final = struct.Struct(">16sQHI")


@dataclass(frozen=True, slots=True)
class BlockId:
    """The part of an upload that a staged block holds. `upload_id` is 32 hexadecimal digits."""

    upload_id: str
    number: int
    crc32c: int
    staged_unix_ms: int

    @property
    def text(self) -> str:
        """The id as Azure takes it, in base64."""
        raw = _LAYOUT.pack(
            bytes.fromhex(self.upload_id), self.staged_unix_ms, self.number, self.crc32c
        )
        return b64encode(raw).decode()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for a block of another program."""
        try:
            upload, staged_unix_ms, number, crc32c = _LAYOUT.unpack(b64decode(text, validate=True))
        except (Base64Error, ValueError, struct.error):
            return None
        return cls(upload.hex(), number, crc32c, staged_unix_ms)


@dataclass(frozen=True, slots=True)
class Block:
    """One entry of a block list."""

    id: str
    size_bytes: int


def read_block_list(body: bytes) -> tuple[Block, ...]:
    """The staged blocks. Raises NoAnswer."""
    staged = read_xml(body, "BlockList").find("UncommittedBlocks")
    if staged is None:
        raise NoAnswer("has no UncommittedBlocks")
    return tuple(map(_block, staged.iterfind("Block")))


def _block(row: Element) -> Block:
    name, size = row.findtext("Name", ""), row.findtext("Size", "")
    if not name or not is_number(size):
        raise NoAnswer("has a block without a name and a size")
    return Block(name, int(size))


def write_block_list(ids: Iterable[str]) -> bytes:
    """The body of Put Block List: staged blocks in the order of the object."""
    rows = "".join(f"<Uncommitted>{escape(text)}</Uncommitted>" for text in ids)
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{rows}</BlockList>'.encode()


def parts_of(upload_id: str, blocks: Iterable[Block]) -> tuple[PartInfo, ...]:
    """The parts of one upload, ascending; of a part that was sent again, the newest block."""
    newest: dict[int, tuple[int, PartInfo]] = {}
    for block in blocks:
        found = BlockId.parse(block.id)
        if found is None or found.upload_id != upload_id:
            continue
        part = PartInfo(found.number, block.id, block.size_bytes, found.crc32c)
        there = newest.get(found.number)
        if there is None or there[0] <= found.staged_unix_ms:
            newest[found.number] = (found.staged_unix_ms, part)
    return tuple(newest[number][1] for number in sorted(newest))
