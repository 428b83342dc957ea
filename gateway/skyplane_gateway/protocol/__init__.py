"""Wire protocol, sans-io: bytes in, events out.

docs/internals/wire-protocol.md is the specification.

Source:  `ChunkFramer` cuts a chunk into frames, `Connection.send_frame` sends them.
Relay:   forwards `FrameReceived` and `ReceiptReceived` with `send_frame`, `send_receipt`.
Sink:    `open_frame`, `ChunkAssembler.add`, and finally `seal_receipt`.
"""

from __future__ import annotations

from skyplane_gateway.protocol._connection import Connection, Identity
from skyplane_gateway.protocol._state import State
from skyplane_gateway.protocol.assembler import ChunkAssembler
from skyplane_gateway.protocol.chunk_manifest import (
    OBJECTS_BASE_BYTES,
    ChunkManifest,
    ObjectEntry,
    PartEntry,
    object_entry_bytes,
    objects_of,
)
from skyplane_gateway.protocol.errors import (
    FrameAltered,
    FrameCorrupt,
    LocalProtocolError,
    NotEncrypted,
    ProtocolError,
    RemoteProtocolError,
)
from skyplane_gateway.protocol.events import (
    NEED_DATA,
    ConnectionClosed,
    Established,
    FrameReceived,
    GoodbyeReceived,
    ReceiptReceived,
)
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import (
    MAX_PAYLOAD_BYTES,
    OpenedFrame,
    RawFrame,
    open_frame,
)
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.limits import PROBE_TRANSFER, WIRE_VERSION
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.receipt import (
    EntryResult,
    RawReceipt,
    Receipt,
    open_receipt,
    seal_receipt,
)
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing

__all__ = [
    "MAX_PAYLOAD_BYTES",
    "NEED_DATA",
    "OBJECTS_BASE_BYTES",
    "PROBE_TRANSFER",
    "UNSEALED",
    "WIRE_VERSION",
    "ChunkAssembler",
    "ChunkFramer",
    "ChunkId",
    "ChunkManifest",
    "Connection",
    "ConnectionClosed",
    "EntryResult",
    "Established",
    "FrameAltered",
    "FrameCorrupt",
    "FrameHeader",
    "FrameReceived",
    "GoodbyeReason",
    "GoodbyeReceived",
    "Identity",
    "LocalProtocolError",
    "NotEncrypted",
    "ObjectEntry",
    "OpenedFrame",
    "PartEntry",
    "ProtocolError",
    "RawFrame",
    "RawReceipt",
    "Receipt",
    "ReceiptReceived",
    "Sealing",
    "RemoteProtocolError",
    "Side",
    "State",
    "object_entry_bytes",
    "objects_of",
    "open_frame",
    "open_receipt",
    "seal_receipt",
]
