"""Wire protocol, sans-io: bytes in, events out.

docs/internals/wire-protocol.md is the specification.

Source:  `ChunkFramer` cuts a chunk into frames, `Connection.send_frame` sends them.
Relay:   forwards `FrameReceived` and `ReceiptReceived` with `send_frame`, `send_receipt`.
Sink:    `open_frame`, `ChunkAssembler.add`, and finally `seal_receipt`.
"""
