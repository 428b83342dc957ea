"""The receipt: the sink's acknowledgement of one chunk, sealed for the source.

    body   crc32c u32 | epoch u32 | status u8 | permanent u8 | code | message | count u16
    entry  status u8 | permanent u8 | etag | crc32c u32 | bytes u64 | code | message

The body's crc32c covers the outer header and the fields after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol._codec import Reader, Writer
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError
from skyplane_gateway.protocol.limits import (
    MAX_CODE,
    MAX_ENTRIES,
    MAX_ETAG,
    MAX_MESSAGE_TEXT,
    MAX_RECEIPT,
)
from skyplane_gateway.protocol.messages import (
    RECEIPT_HEADER_BYTES,
    ChunkId,
    pack_receipt_header,
)
from skyplane_gateway.protocol.sealing import PLAIN, SEAL_BYTES, Sealer

_CHECK_BYTES: Final = 4
_BODY_LIMIT: Final = MAX_RECEIPT - RECEIPT_HEADER_BYTES - SEAL_BYTES - _CHECK_BYTES
#: Size of an entry without etag, code and message.
_ENTRY_BYTES: Final = 1 + 1 + 2 + 4 + 8 + 2 + 2
#: Size of the body without entries, code and message.
_FIXED_BYTES: Final = 4 + 1 + 1 + 2 + 2 + 2


class ReceiptStatus(IntEnum):
    """DURABLE: the store has confirmed the write. REFUSED: not written; retry or fail."""

    DURABLE = 1
    REFUSED = 2


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result for the part, or for one object of a batch, in manifest order.

    Attributes:
        etag: of the written part or object, from the store.
        crc32c, size_bytes: of the written payload.
        code, message, is_permanent: the error if `status` is REFUSED.
    """

    status: ReceiptStatus
    etag: str = ""
    crc32c: int = 0
    size_bytes: int = 0
    code: str = ""
    message: str = ""
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sink's acknowledgement of a whole chunk.

    `epoch` is the sink's current epoch; it may be higher than the chunk's. `status` is
    DURABLE only if every entry is. `entries` may be empty if the sink refused the chunk.
    """

    epoch: int
    status: ReceiptStatus
    code: str = ""
    message: str = ""
    is_permanent: bool = False
    entries: tuple[EntryResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RawReceipt:
    """A receipt ready to send: header and sealed part."""

    header: ChunkId
    sealed: tuple[Buffer, ...]


def seal_receipt(header: ChunkId, receipt: Receipt, sealer: Sealer = PLAIN) -> RawReceipt:
    """Encode and seal a receipt. Only error messages are cut to fit.

    Raises:
        LocalProtocolError: a code, an etag or the number of entries exceeds its limit, or
            a DURABLE receipt has an entry that is not.
    """
    body = _encode(_fitted(receipt))
    outer = pack_receipt_header(header, SEAL_BYTES + _CHECK_BYTES + len(body))
    check = crc32c(body, crc32c(outer)).to_bytes(_CHECK_BYTES, "big")
    return RawReceipt(header, sealer.seal(outer, (check + body,)))


def open_receipt(header: ChunkId, sealed: memoryview, sealer: Sealer = PLAIN) -> Receipt:
    """Open and decode a receipt.

    Raises:
        FrameCorrupt: the checksum does not match.
        RemoteProtocolError: it is malformed.
    """
    outer = pack_receipt_header(header, len(sealed))
    body = sealer.open(outer, sealed)
    if int.from_bytes(body[:_CHECK_BYTES], "big") != crc32c(body[_CHECK_BYTES:], crc32c(outer)):
        raise FrameCorrupt(f"the receipt for chunk {header.chunk} does not have its checksum")
    return _decode(body[_CHECK_BYTES:])


def _encode(receipt: Receipt) -> bytes:
    problem = _problem(receipt)
    if problem:
        raise LocalProtocolError(f"receipt: {problem}")
    writer = Writer("receipt", _BODY_LIMIT)
    writer.u32(receipt.epoch, "epoch")
    writer.u8(receipt.status, "status")
    writer.u8(receipt.is_permanent, "permanent")
    writer.text(receipt.code, MAX_CODE, "code")
    writer.text(receipt.message, MAX_MESSAGE_TEXT, "message")
    writer.u16(len(receipt.entries), "count")
    for entry in receipt.entries:
        writer.u8(entry.status, "entry status")
        writer.u8(entry.is_permanent, "permanent")
        writer.text(entry.etag, MAX_ETAG, "etag")
        writer.u32(entry.crc32c, "crc32c")
        writer.u64(entry.size_bytes, "bytes")
        writer.text(entry.code, MAX_CODE, "code")
        writer.text(entry.message, MAX_MESSAGE_TEXT, "message")
    return writer.done()


def _decode(body: Buffer) -> Receipt:
    reader = Reader("receipt", body)
    epoch = reader.u32("epoch")
    status = _read_status(reader)
    is_permanent = _read_flag(reader)
    code = reader.text(MAX_CODE, "code")
    message = reader.text(MAX_MESSAGE_TEXT, "message")
    count = reader.u16("count")
    if count > MAX_ENTRIES:
        raise reader.error(f"{count} entries, the limit is {MAX_ENTRIES}")
    entries = tuple(_read_entry(reader) for _ in range(count))
    reader.end()
    receipt = Receipt(epoch, status, code, message, is_permanent, entries)
    problem = _problem(receipt)
    if problem:
        raise reader.error(problem)
    return receipt


def _read_entry(reader: Reader) -> EntryResult:
    status = _read_status(reader)
    is_permanent = _read_flag(reader)
    return EntryResult(
        status=status,
        etag=reader.text(MAX_ETAG, "etag"),
        crc32c=reader.u32("crc32c"),
        size_bytes=reader.u64("bytes"),
        code=reader.text(MAX_CODE, "code"),
        message=reader.text(MAX_MESSAGE_TEXT, "message"),
        is_permanent=is_permanent,
    )


def _read_status(reader: Reader) -> ReceiptStatus:
    value = reader.u8("status")
    try:
        return ReceiptStatus(value)
    except ValueError as error:
        raise reader.error(f"status {value} is unknown") from error


def _read_flag(reader: Reader) -> bool:
    value = reader.u8("permanent")
    if value > 1:
        raise reader.error(f"permanent is {value}, not 0 or 1")
    return bool(value)


def _problem(receipt: Receipt) -> str | None:
    # A contradictory receipt could report lost data as success.
    if receipt.status is ReceiptStatus.DURABLE:
        if not receipt.entries:
            return "DURABLE without an entry"
        if any(entry.status is not ReceiptStatus.DURABLE for entry in receipt.entries):
            return "DURABLE with a refused entry"
    if len(receipt.entries) > MAX_ENTRIES:
        return f"{len(receipt.entries)} entries, the limit is {MAX_ENTRIES}"
    return None


def _fitted(receipt: Receipt) -> Receipt:
    """Cut messages to their limit; those of entries to an equal share of the space left."""
    receipt = replace(receipt, message=_cut(receipt.message, MAX_MESSAGE_TEXT))
    with_message = [entry for entry in receipt.entries if entry.message]
    if not with_message:
        return receipt
    taken = _FIXED_BYTES + _text_bytes((receipt.code, receipt.message))
    taken += _ENTRY_BYTES * len(receipt.entries)
    taken += sum(_text_bytes((entry.etag, entry.code)) for entry in receipt.entries)
    share = max(0, min(MAX_MESSAGE_TEXT, (_BODY_LIMIT - taken) // len(with_message)))
    entries = tuple(
        replace(entry, message=_cut(entry.message, share)) if entry.message else entry
        for entry in receipt.entries
    )
    return replace(receipt, entries=entries)


def _text_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode(errors="replace")) for text in texts)


def _cut(text: str, limit: int) -> str:
    return text.encode(errors="replace")[:limit].decode(errors="ignore")
