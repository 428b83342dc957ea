"""Every limit of the wire, each with its reason. Sizes are bytes.

Both sides check a limit: a sender raises `LocalProtocolError`, a receiver raises
`RemoteProtocolError` before it stores anything.
"""

from __future__ import annotations

from typing import Final

#: Version of the wire. Both ends must have the same one; there is no negotiation.
WIRE_VERSION: Final = 3

#: Largest message, with its prefix. A relay holds one frame per connection, so 64
#: connections cost at most 64 MiB. At 1 MiB the fixed cost of a frame (about 20 us of
#: Python) is a tenth of the cost of moving it.
MAX_MESSAGE: Final = 1 << 20

#: Handshake messages and GOODBYE: all that a gateway stores for a peer without proof.
MAX_HANDSHAKE: Final = 1 << 10

#: Receipts. Of 64 entries with the longest messages, in characters that JSON escapes, 190 KiB.
MAX_RECEIPT: Final = 512 << 10

#: Chunk manifest in frame 0. At least half of the first frame is payload.
MAX_MANIFEST: Final = 512 << 10

#: Objects in one batch. A lost chunk repeats their requests to the store.
MAX_ENTRIES: Final = 64

#: Frames in one chunk: limits the sink's memory per frame. Allows a chunk of 16 GiB in full
#: frames, larger than any store's part.
MAX_FRAMES: Final = 1 << 14

#: Name of a node in the HELLO, for instance "aws:us-east-1/0".
MAX_NODE: Final = 128

#: Message in a receipt, in characters, and text of a GOODBYE, in bytes.
MAX_MESSAGE_TEXT: Final = 500
MAX_GOODBYE_TEXT: Final = 512

#: Sizes that are fixed by construction.
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
FLEET_BYTES: Final = 8
TRANSFER_BYTES: Final = 16

#: The transfer of chunks that measure a route; sinks discard them. Ids of transfers are hashes.
PROBE_TRANSFER: Final = b"\xff" * TRANSFER_BYTES
