"""The receipt: the sink's acknowledgement of one chunk, sealed for the source.

    body   crc32c u32 | `Receipt` as JSON

The crc32c covers the outer header and the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.schema import encode
from skyplane_gateway.protocol._fields import pack_json, unpack_json
from skyplane_gateway.protocol.errors import FrameCorrupt
from skyplane_gateway.protocol.limits import MAX_MESSAGE_TEXT, MAX_RECEIPT
from skyplane_gateway.protocol.messages import RECEIPT_HEADER_BYTES, ChunkId, pack_receipt_header
from skyplane_gateway.protocol.sealing import PLAIN, SEAL_BYTES, Sealer, whole

_CHECK_BYTES: Final = 4
_BODY_LIMIT: Final = MAX_RECEIPT - RECEIPT_HEADER_BYTES - SEAL_BYTES - _CHECK_BYTES


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result for the part, or for one object of a batch, in manifest order.

    Attributes:
        error: as `SkyplaneError.to_dict`, when nothing was written. None: the store has confirmed
            the write.
        etag: of the written part or object, from the store.
        crc32c: of the written payload.
    """

    error: Mapping[str, Any] | None
    etag: str = ""
    crc32c: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sink's acknowledgement of a whole chunk.

    `epoch` is the sink's current epoch; it may be higher than the chunk's. If the sink refused
    the whole chunk, there is an error (see `EntryResult`) in place of entries.
    """

    epoch: int
    error: Mapping[str, Any] | None = None
    entries: tuple[EntryResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RawReceipt:
    """A receipt ready to send: header and sealed part."""

    header: ChunkId
    sealed: tuple[Buffer, ...]


def seal_receipt(header: ChunkId, receipt: Receipt, sealer: Sealer = PLAIN) -> RawReceipt:
    """Encode and seal a receipt. Only error messages are cut to fit.

    Raises:
        LocalProtocolError: the etags are too long for a receipt.
    """
    entries = tuple(
        row if row.error is None else replace(row, error=_cut(row.error)) for row in receipt.entries
    )
    # With short messages a refusal of every object fits.
    fitted = replace(receipt, error=receipt.error and _cut(receipt.error), entries=entries)
    body = pack_json("receipt", encode(fitted), _BODY_LIMIT)
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
    body = whole(sealer.open(outer, sealed))
    if int.from_bytes(body[:_CHECK_BYTES], "big") != crc32c(body[_CHECK_BYTES:], crc32c(outer)):
        raise FrameCorrupt(f"the receipt for chunk {header.chunk} does not have its checksum")
    return unpack_json(Receipt, "receipt", body[_CHECK_BYTES:], _BODY_LIMIT)


def _cut(error: Mapping[str, Any]) -> dict[str, Any]:
    message = str(error["message"])[:MAX_MESSAGE_TEXT].encode(errors="replace").decode()
    return {"code": error["code"], "message": message, "is_permanent": error["is_permanent"]}
