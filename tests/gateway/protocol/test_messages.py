"""Each message as hand-written bytes, through its writer and its reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.protocol.lab import ConnectionPair, give

from skyplane_gateway.protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)
from skyplane_gateway.protocol.handshake import (
    Challenge,
    Hello,
    Side,
    pack_challenge,
    pack_hello,
    pack_proof,
    unpack_challenge,
    unpack_hello,
    unpack_proof,
)
from skyplane_gateway.protocol.messages import (
    FRAME_HEADER_BYTES,
    MAX_BYTES,
    PREFIX_BYTES,
    RECEIPT_HEADER_BYTES,
    ChunkId,
    FrameHeader,
    MessageType,
    pack_frame_header,
    pack_goodbye,
    pack_prefix,
    pack_receipt_header,
    read_prefix,
    unpack_frame_header,
    unpack_goodbye,
    unpack_receipt_header,
)
from skyplane_gateway.protocol.reasons import GoodbyeReason

FLEET = b"fleet-01"
FLEET_HEX = "666c6565742d3031"

HELLO = Hello(FLEET, b"D" * 16, 7, Side.UPSTREAM, "aws:us-east-1/0")
HELLO_HEX = (
    "01 00 0003 0000002a"
    + FLEET_HEX
    + "44444444444444444444444444444444"
    + "0007 01"
    + "6177733a75732d656173742d312f30"
)

CHALLENGE = Challenge(FLEET, b"A" * 16, "gcp:us-west1/1")
CHALLENGE_HEX = (
    "02 00 0003 00000046"
    + FLEET_HEX
    + "41414141414141414141414141414141"
    + "aa" * 32
    + "6763703a75732d77657374312f31"
)

PROOF_HEX = "03 00 0003 00000020" + "bb" * 32

FRAME = FrameHeader(ChunkId(FLEET, b"T" * 16, 3, 7, 2, 5), 1, True)
FRAME_HEX = (
    "04 01 0003 0000007b" + FLEET_HEX + "54" * 16 + "00000003 0007 0002 0000000000000005 00000001"
)

RECEIPT = ChunkId(FLEET, b"T" * 16, 3, 7, 2, 5)
RECEIPT_HEX = "05 00 0003 0000007a" + FLEET_HEX + "54" * 16 + "00000003 0007 0002 0000000000000005"

GOODBYE_HEX = "06 00 0003 00000005 0001 627965"


def from_hex(text: str) -> bytes:
    return bytes.fromhex(text)


#: Name -> writer, bytes of the specification, reader, value.
MESSAGES: dict[str, tuple[Callable[[], bytes], str, Callable[[bytes], object], object]] = {
    "hello": (lambda: pack_hello(HELLO), HELLO_HEX, lambda data: unpack_hello(data[8:]), HELLO),
    "challenge": (
        lambda: pack_challenge(CHALLENGE, b"\xaa" * 32),
        CHALLENGE_HEX,
        lambda data: unpack_challenge(data[8:]),
        (CHALLENGE, b"\xaa" * 32),
    ),
    "proof": (
        lambda: pack_proof(b"\xbb" * 32),
        PROOF_HEX,
        lambda data: unpack_proof(data[8:]),
        b"\xbb" * 32,
    ),
    "frame": (
        lambda: pack_frame_header(FRAME, 0x7B - 44),
        FRAME_HEX,
        unpack_frame_header,
        FRAME,
    ),
    "receipt": (
        lambda: pack_receipt_header(RECEIPT, 0x7A - 40),
        RECEIPT_HEX,
        unpack_receipt_header,
        RECEIPT,
    ),
    "goodbye": (
        lambda: pack_goodbye(GoodbyeReason.DRAINING, "bye"),
        GOODBYE_HEX,
        lambda data: unpack_goodbye(data[8:]),
        (GoodbyeReason.DRAINING, "bye"),
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_writer_and_reader_agree_with_the_specification(name: str) -> None:
    write, data, read, value = MESSAGES[name]
    assert write() == from_hex(data)
    assert read(from_hex(data)) == value


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("hello", 27, 155), ("challenge", 56, 184), ("proof", 32, 32), ("goodbye", 2, 514)],
)
def test_a_body_of_another_size_is_refused(name: str, least: int, most: int) -> None:
    """All but its text has fixed sizes, and the text a limit."""
    _, data, read, _ = MESSAGES[name]
    whole = from_hex(data)[: PREFIX_BYTES + least] + b"n" * (most - least)
    assert read(whole)
    assert read(whole[: PREFIX_BYTES + least])
    for wrong in (whole + b"n", *(whole[:size] for size in range(8, PREFIX_BYTES + least))):
        with pytest.raises(RemoteProtocolError, match=f"it has {least} to {most}"):
            read(wrong)


@pytest.mark.parametrize("name", MESSAGES)
def test_prefix_of_every_message(name: str) -> None:
    data = from_hex(MESSAGES[name][1])
    prefix = read_prefix(memoryview(data))
    assert prefix.kind is MessageType[{"frame": "DATA"}.get(name, name.upper())]
    assert prefix.flags == (1 if name == "frame" else 0)
    body = {"frame": 0x7B, "receipt": 0x7A}.get(name, len(data) - PREFIX_BYTES)
    assert prefix.size_bytes == PREFIX_BYTES + body


def test_header_sizes_are_those_of_the_specification() -> None:
    assert (PREFIX_BYTES, FRAME_HEADER_BYTES, RECEIPT_HEADER_BYTES) == (8, 52, 48)


@pytest.mark.parametrize("kind", MessageType)
def test_each_type_has_its_size_limit(kind: MessageType) -> None:
    cap = MAX_BYTES[kind]
    fitting = bytes([kind, 0, 0, 3]) + (cap - 8).to_bytes(4, "big")
    assert read_prefix(memoryview(fitting)).size_bytes == cap
    assert pack_prefix(kind, cap - 8) == fitting
    beyond = bytes([kind, 0, 0, 3]) + (cap - 7).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match=str(cap)):
        read_prefix(memoryview(beyond))
    with pytest.raises(LocalProtocolError, match=str(cap)):
        pack_prefix(kind, cap - 7)


@pytest.mark.parametrize(("kind", "least"), [(MessageType.DATA, 44), (MessageType.RECEIPT, 40)])
def test_data_and_receipts_have_room_for_their_outer_header(kind: MessageType, least: int) -> None:
    short = bytes([kind, 0, 0, 3]) + (least - 1).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError):
        read_prefix(memoryview(short))


@pytest.mark.parametrize("number", [0, 7, 0x47, 0xFF])
def test_unknown_type_is_refused(number: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"type {number} is unknown"):
        read_prefix(memoryview(bytes([number, 0, 0, 3, 0, 0, 0, 50])))


@pytest.mark.parametrize("kind", MessageType)
@pytest.mark.parametrize("bit", range(8))
def test_unknown_flag_is_refused(kind: MessageType, bit: int) -> None:
    data = memoryview(bytes([kind, 1 << bit, 0, 3, 0, 0, 0, 50]))
    if kind is MessageType.DATA and bit == 0:
        assert read_prefix(data).flags == 1
    else:
        with pytest.raises(RemoteProtocolError, match="unknown flags"):
            read_prefix(data)


@pytest.mark.parametrize("version", [0, 1, 2, 0x0100, 0xFFFF])
def test_the_error_names_both_versions(version: int) -> None:
    data = bytes([MessageType.HELLO, 0xFF]) + version.to_bytes(2, "big") + b"\xff" * 4
    with pytest.raises(WireVersionMismatch, match=f"version 3, the peer {version}") as caught:
        read_prefix(memoryview(data))
    assert caught.value.is_permanent


@pytest.mark.parametrize(
    "header",
    [
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, fleet=b"short")),
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, transfer=b"T" * 17)),
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, epoch=1 << 32)),
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, route=1 << 16)),
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, attempt=-1)),
        replace(FRAME, chunk_id=replace(FRAME.chunk_id, chunk=1 << 64)),
        replace(FRAME, frame=1 << 32),
        replace(RECEIPT, fleet=b""),
        replace(RECEIPT, route=1 << 16),
    ],
)
def test_a_header_that_does_not_fit_is_a_local_error(header: FrameHeader | ChunkId) -> None:
    pack: Any = pack_frame_header if isinstance(header, FrameHeader) else pack_receipt_header
    with pytest.raises(LocalProtocolError):
        pack(header, 100)


def test_goodbye_text_is_cut_between_characters() -> None:
    data = pack_goodbye(GoodbyeReason.DONE, "x" + "€" * 300)
    reason, text = unpack_goodbye(data[8:])
    assert reason is GoodbyeReason.DONE
    assert text == "x" + "€" * 170
    assert len(text.encode()) == 511


def test_goodbye_of_unknown_reason_or_broken_text_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="reason 99"):
        unpack_goodbye(from_hex("0063"))
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        unpack_goodbye(from_hex("0000 ff"))


def test_hello_of_unknown_side_is_refused() -> None:
    data = bytearray(from_hex(HELLO_HEX))
    data[34] = 3
    with pytest.raises(RemoteProtocolError, match="side 3"):
        unpack_hello(data[8:])


@pytest.mark.parametrize(
    "hello",
    [
        replace(HELLO, fleet=b"short"),
        replace(HELLO, nonce=b"N" * 15),
        replace(HELLO, route=-1),
        replace(HELLO, node="n" * 129),
        replace(HELLO, node="\ud800"),
    ],
)
def test_a_hello_that_does_not_fit_is_a_local_error(hello: Hello) -> None:
    with pytest.raises(LocalProtocolError):
        pack_hello(hello)


# Computed apart from this code: HMAC-SHA256 over label, HELLO and CHALLENGE.
ACCEPTOR_PROOF = "5f396b57712a4ad25d5980ec93eb38362f8d45b7e2ee87d9d121e06f8897cc26"
DIALER_PROOF = "cf3a4b1019047e4c47c319956e41c0241dd4c86509979142f4e19ede9ddf2b2f"


def test_handshake_on_the_wire() -> None:
    pair = ConnectionPair()
    dialer, acceptor = pair.dialer, pair.acceptor
    hello = b"".join(dialer.data_to_send())
    assert hello == from_hex(HELLO_HEX)
    give(acceptor, hello)
    challenge = b"".join(acceptor.data_to_send())
    assert challenge == from_hex(CHALLENGE_HEX.replace("aa" * 32, ACCEPTOR_PROOF))
    give(dialer, challenge)
    proof = b"".join(dialer.data_to_send())
    assert proof == from_hex("03 00 0003 00000020" + DIALER_PROOF)
