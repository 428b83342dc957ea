"""Every limit of wire v1, each with its reason. Sizes are bytes.

Both sides check a limit: a sender raises `LocalProtocolError`, a receiver raises
`RemoteProtocolError` before it stores anything.
"""

from __future__ import annotations

from typing import Final

#: Version of the wire. Both ends must have the same one; there is no negotiation.
WIRE_VERSION: Final = 1

#: Largest message, with its prefix. A relay holds one frame per connection, so 64
#: connections cost at most 64 MiB. At 1 MiB the fixed cost of a frame (about 20 us of
#: Python) is a tenth of the cost of moving it.
MAX_MESSAGE: Final = 1 << 20

#: Handshake messages and GOODBYE: all that a gateway stores for a peer without proof.
MAX_HANDSHAKE: Final = 1 << 10

#: Receipts. 4096 entries of ordinary size (an etag of 64 bytes) take 340 KiB.
MAX_RECEIPT: Final = 512 << 10

#: Chunk manifest in frame 0. At least half of the first frame is payload.
MAX_MANIFEST: Final = 512 << 10

#: Objects in one batch. A lost chunk repeats their requests to the store.
MAX_ENTRIES: Final = 4096

#: Frames in one chunk: limits the sink's memory per frame. Allows a chunk of 16 GiB in full
#: frames, larger than any store's part.
MAX_FRAMES: Final = 1 << 14

#: Key of an object, in UTF-8: that of a file is its whole path, of which Linux allows 4,095 bytes.
#: In clouds a key has at most 1,024.
MAX_KEY: Final = 4096

#: Upload id. S3 documents no length; real ones have up to about 200 characters.
MAX_UPLOAD_ID: Final = 1024

#: Headers, user metadata and tags of one object. The stores allow 2 to 8 KiB of metadata, and ten
#: tags of 384 characters.
MAX_ATTRIBUTES: Final = 20 << 10

#: Etag or generation; opaque, usually below 64 characters.
MAX_ETAG: Final = 1024

#: Name of a node in the HELLO, for instance "aws:us-east-1/0".
MAX_NODE: Final = 128

#: Error code and message of a receipt, text of a GOODBYE.
MAX_CODE: Final = 64
MAX_MESSAGE_TEXT: Final = 1024
MAX_GOODBYE_TEXT: Final = 512

#: Sizes that are fixed by construction.
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
FLEET_BYTES: Final = 8
TRANSFER_BYTES: Final = 16
