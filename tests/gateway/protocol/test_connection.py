"""A connection as its caller sees it: pieces, forwarding, closing, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.protocol.lab import (
    ConnectionPair,
    events_of,
    give,
    identity_of,
    make_frames,
    make_receipt,
)

from skyplane_gateway.protocol._reader import FRAME_STAGING_BYTES, STAGING_BYTES
from skyplane_gateway.protocol.connection import Connection
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.events import (
    NEED_DATA,
    ConnectionClosed,
    Established,
    Event,
    FrameReceived,
    GoodbyeReceived,
    ReceiptReceived,
)
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.limits import MAX_HANDSHAKE
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.states import State


@pytest.fixture
def conversation() -> tuple[bytes, list[Event]]:
    """All messages of a dialer, up to its GOODBYE, and their events."""
    pair = ConnectionPair(Side.UPSTREAM)
    hello = pair.dialer.data_to_send()
    for buffer in hello:
        give(pair.acceptor, buffer)
    for buffer in pair.acceptor.data_to_send():
        give(pair.dialer, buffer)
    expected: list[Event] = [Established("aws:us-east-1/0", 7, True)]
    for frame in make_frames(bytes(range(200)), frame_bytes=90):
        pair.dialer.send_frame(frame.header, *frame.sealed)
        expected.append(FrameReceived(frame.header, memoryview(b"".join(frame.sealed))))
    pair.dialer.close(GoodbyeReason.DONE, "bye")
    expected.append(GoodbyeReceived(GoodbyeReason.DONE, "bye"))
    return b"".join([*hello, *pair.dialer.data_to_send()]), expected


def fresh_acceptor() -> Connection:
    return Connection.accept(identity_of("gcp:us-west1/1"), nonce=b"A" * 16)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 51, 52, 53, 100_000])
def test_a_conversation_in_pieces_has_the_same_events(
    step: int, conversation: tuple[bytes, list[Event]]
) -> None:
    data, expected = conversation
    acceptor = fresh_acceptor()
    found: list[Event] = []
    for start in range(0, len(data), step):
        give(acceptor, data[start : start + step])
        found += events_of(acceptor)
    assert found == expected


def test_a_conversation_cut_anywhere_has_the_same_events(
    conversation: tuple[bytes, list[Event]],
) -> None:
    data, expected = conversation
    for cut in range(len(data) + 1):
        acceptor = fresh_acceptor()
        give(acceptor, data[:cut])
        give(acceptor, data[cut:])
        assert events_of(acceptor) == expected, cut


def test_bytes_after_a_goodbye_are_refused_and_after_the_end_dropped(
    conversation: tuple[bytes, list[Event]],
) -> None:
    data, expected = conversation
    acceptor = fresh_acceptor()
    give(acceptor, data + bytes.fromhex("06 00 0003 00000002 0000"))
    for event in expected:
        assert acceptor.next_event() == event
    with pytest.raises(RemoteProtocolError, match="not allowed in state downstream-left"):
        acceptor.next_event()

    acceptor = fresh_acceptor()
    give(acceptor, data)
    acceptor.close()
    give(acceptor, b"anything" * 100)
    assert events_of(acceptor) == [*expected, ConnectionClosed(is_clean=True)]


def test_two_goodbyes_and_more_in_one_piece() -> None:
    """Bytes after the closing GOODBYE in the same read have no effect."""
    pair = ConnectionPair().established()
    pair.upstream.close()
    give(pair.upstream, bytes.fromhex("06 00 0003 00000002 0000") + b"\xff" * 20)
    assert events_of(pair.upstream) == [
        GoodbyeReceived(GoodbyeReason.DONE, ""),
        ConnectionClosed(is_clean=True),
    ]
    assert len(pair.upstream.get_buffer()) == STAGING_BYTES


@pytest.mark.parametrize("side", Side)
def test_frames_and_receipts_travel_whichever_side_dialed(side: Side) -> None:
    pair = ConnectionPair(side).established()
    frames = make_frames(b"x" * 100)
    receipt = make_receipt()
    for frame in frames:
        pair.upstream.send_frame(frame.header, *frame.sealed)
    pair.downstream.send_receipt(receipt.header, *receipt.sealed)
    events = pair.exchange()
    assert events[pair.downstream] == [
        FrameReceived(frame.header, memoryview(b"".join(frame.sealed))) for frame in frames
    ]
    assert events[pair.upstream] == [
        ReceiptReceived(receipt.header, memoryview(b"".join(receipt.sealed)))
    ]


def test_a_relay_forwards_the_same_bytes() -> None:
    near, far = ConnectionPair().established(), ConnectionPair(Side.DOWNSTREAM).established()
    frame = make_frames(bytes(100_000), frame_bytes=100_000)[0]
    near.upstream.send_frame(frame.header, *frame.sealed)
    said = b"".join(near.upstream.data_to_send())
    give(near.downstream, said)
    event = near.downstream.next_event()
    assert isinstance(event, FrameReceived)
    far.upstream.send_frame(event.header, event.sealed)
    outgoing = far.upstream.data_to_send()
    assert outgoing[1] is event.sealed
    assert b"".join(outgoing) == said

    receipt = make_receipt()
    far.downstream.send_receipt(receipt.header, *receipt.sealed)
    answer = far.exchange()[far.upstream][0]
    assert isinstance(answer, ReceiptReceived)
    near.downstream.send_receipt(answer.header, answer.sealed)
    assert near.exchange()[near.upstream] == [answer]


PART_OF_300_000 = (
    b'{"length_bytes":300000,"part":{"key":"a/b.c","upload_id":"u1","number":1,"offset":0}}'
)


def test_a_payload_is_sent_uncopied() -> None:
    pair = ConnectionPair().established()
    payload = memoryview(bytearray(300_000))
    for frame in make_frames(payload, frame_bytes=300_000):
        pair.upstream.send_frame(frame.header, *frame.sealed)
    outer, head, sent, tag = pair.upstream.data_to_send()
    assert isinstance(sent, memoryview)
    assert sent.obj is payload.obj
    assert (len(outer), len(head), len(tag)) == (52, 26 + 28 + len(PART_OF_300_000), 16)


def test_body_is_received_straight_into_the_buffer_of_the_event() -> None:
    """get_buffer and buffer_updated as an event loop calls them."""
    pair = ConnectionPair().established()
    frame = make_frames(bytes(range(250)) * 2000, frame_bytes=500_000)[0]
    pair.upstream.send_frame(frame.header, *frame.sealed)
    data = memoryview(b"".join(pair.upstream.data_to_send()))
    receiver = pair.downstream
    first = receiver.get_buffer(-1)
    assert len(first) == FRAME_STAGING_BYTES
    first[:1000], data = data[:1000], data[1000:]
    receiver.buffer_updated(1000)
    body = receiver.get_buffer(65536)
    assert len(body) == len(data), "exactly the missing part"
    while data:
        buffer = receiver.get_buffer(65536)
        assert buffer.obj is body.obj
        count = min(len(buffer), 70_001)
        buffer[:count], data = data[:count], data[count:]
        assert receiver.next_event() is NEED_DATA
        receiver.buffer_updated(count)
    event = receiver.next_event()
    assert isinstance(event, FrameReceived)
    assert event.sealed.obj is body.obj
    assert event.sealed.readonly
    assert event.sealed == b"".join(frame.sealed)
    assert len(receiver.get_buffer()) == FRAME_STAGING_BYTES


def test_buffer_is_never_empty() -> None:
    """An empty buffer is an error for an event loop."""
    pair = ConnectionPair().established()
    for frame in make_frames(bytes(STAGING_BYTES * 2), frame_bytes=1000):
        pair.upstream.send_frame(frame.header, *frame.sealed)
    data = memoryview(b"".join(pair.upstream.data_to_send()) + b"\xff" * STAGING_BYTES * 2)
    while data:
        buffer = pair.downstream.get_buffer()
        count = min(len(buffer), len(data))
        assert count
        buffer[:count], data = data[:count], data[count:]
        pair.downstream.buffer_updated(count)
    assert pair.downstream.state is State.FAILED


@pytest.mark.parametrize("changes", [{"fleet": b"fleet-02"}, {"route": 8}])
def test_frames_and_receipts_stay_on_their_route(changes: dict[str, Any]) -> None:
    """Refused by the outer header, before the body gets memory."""
    pair = ConnectionPair().established()
    frame, receipt = make_frames(bytes(200_000), frame_bytes=200_000)[0], make_receipt()
    stray = replace(frame.header, chunk_id=replace(frame.header.chunk_id, **changes))
    with pytest.raises(LocalProtocolError, match="route 7"):
        pair.upstream.send_frame(stray, *frame.sealed)
    with pytest.raises(LocalProtocolError, match="route 7"):
        pair.downstream.send_receipt(replace(receipt.header, **changes), *receipt.sealed)
    position = 8 if "fleet" in changes else 37
    pair.upstream.send_frame(frame.header, *frame.sealed)
    pair.downstream.send_receipt(receipt.header, *receipt.sealed)
    for sender, receiver in ((pair.upstream, pair.downstream), (pair.downstream, pair.upstream)):
        head = bytearray(b"".join(sender.data_to_send())[:52])
        head[position] ^= 1
        give(receiver, head)
        assert len(receiver.get_buffer()) in (FRAME_STAGING_BYTES, STAGING_BYTES)
        with pytest.raises(RemoteProtocolError, match="on a connection of route 7"):
            receiver.next_event()


def test_a_frame_that_is_too_large_is_a_local_error() -> None:
    pair = ConnectionPair().established()
    header = make_frames(b"x")[0].header
    with pytest.raises(LocalProtocolError, match="limit is 1048576"):
        pair.upstream.send_frame(header, bytes(1 << 20))
    assert pair.upstream.data_to_send() == []
    assert pair.upstream.state is State.UPSTREAM


def test_good_events_come_before_the_error_and_the_error_stays() -> None:
    pair = ConnectionPair().established()
    frame = make_frames(b"x")[0]
    pair.upstream.send_frame(frame.header, *frame.sealed)
    give(pair.downstream, b"".join(pair.upstream.data_to_send()) + b"\xff" * 8)
    assert isinstance(pair.downstream.next_event(), FrameReceived)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="type 255"):
            pair.downstream.next_event()


def test_a_goodbye_has_the_reason_of_a_refusal() -> None:
    pair = ConnectionPair().established()
    give(pair.downstream, b"\xff" * 8)
    for buffer in pair.downstream.data_to_send():
        give(pair.upstream, buffer)
    (event,) = events_of(pair.upstream)
    assert isinstance(event, GoodbyeReceived)
    assert event.reason is GoodbyeReason.PROTOCOL_ERROR
    assert "type 255" in event.text


def test_messages_in_flight_arrive_after_both_goodbyes() -> None:
    """Both send GOODBYE at the same time."""
    pair = ConnectionPair().established()
    frame, receipt = make_frames(b"x")[0], make_receipt()
    pair.upstream.send_frame(frame.header, *frame.sealed)
    pair.downstream.send_receipt(receipt.header, *receipt.sealed)
    pair.upstream.close(GoodbyeReason.DRAINING)
    pair.downstream.close(GoodbyeReason.DRAINING)
    events = pair.exchange()
    for connection, kind in ((pair.upstream, ReceiptReceived), (pair.downstream, FrameReceived)):
        first, goodbye, closed = events[connection]
        assert isinstance(first, kind)
        assert goodbye == GoodbyeReceived(GoodbyeReason.DRAINING, "")
        assert closed == ConnectionClosed(is_clean=True)


def test_a_sink_sends_receipts_after_the_goodbye_of_the_source() -> None:
    pair = ConnectionPair().established()
    pair.upstream.close()
    pair.exchange()
    assert pair.downstream.state is State.DOWNSTREAM_LEFT
    receipt = make_receipt()
    pair.downstream.send_receipt(receipt.header, *receipt.sealed)
    pair.downstream.close()
    assert [type(event) for event in pair.exchange()[pair.upstream]] == [
        ReceiptReceived,
        GoodbyeReceived,
        ConnectionClosed,
    ]


def test_a_connection_lost_inside_a_frame_is_not_clean() -> None:
    pair = ConnectionPair().established()
    frame = make_frames(bytes(100_000), frame_bytes=100_000)[0]
    pair.upstream.send_frame(frame.header, *frame.sealed)
    give(pair.downstream, b"".join(pair.upstream.data_to_send())[:-1])
    pair.downstream.receive_eof()
    assert pair.downstream.next_event() == ConnectionClosed(is_clean=False)
    assert pair.downstream.next_event() is NEED_DATA


def test_a_peer_without_proof_gets_little_memory() -> None:
    stranger = fresh_acceptor()
    assert stranger._reader._staging.nbytes == 0
    assert len(stranger.get_buffer()) <= MAX_HANDSHAKE
    pair = ConnectionPair(Side.UPSTREAM)
    pair.exchange()
    assert len(pair.acceptor.get_buffer()) == FRAME_STAGING_BYTES
    assert len(pair.dialer.get_buffer()) == STAGING_BYTES
