"""The transition table: its laws, and every event in every state on a real connection."""

from __future__ import annotations

import pytest
from tests.gateway.protocol.lab import ConnectionPair, give, identity_of

from skyplane_gateway.protocol.connection import Connection
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.events import NEED_DATA, ConnectionClosed
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader, MessageType
from skyplane_gateway.protocol.states import (
    FINAL,
    PEER_HAS_LEFT,
    RECEIVING,
    TRANSITIONS,
    State,
    Step,
    move,
)

OPEN = {Step.SEND_GOODBYE, Step.RECV_GOODBYE, Step.RECV_EOF, Step.FAIL}
#: Everything that is allowed, written down a second time: what each state can do.
ALLOWED = {
    State.START: {Step.SEND_HELLO, Step.RECV_HELLO, *OPEN},
    State.AWAIT_CHALLENGE: {Step.RECV_CHALLENGE, *OPEN},
    State.AWAIT_PROOF: {Step.RECV_PROOF, *OPEN},
    State.HANDSHAKEN: {Step.BE_UPSTREAM, Step.BE_DOWNSTREAM},
    State.UPSTREAM: {Step.SEND_DATA, Step.RECV_RECEIPT, *OPEN},
    State.UPSTREAM_LEAVING: {Step.RECV_RECEIPT, Step.RECV_GOODBYE, Step.RECV_EOF, Step.FAIL},
    State.UPSTREAM_LEFT: {Step.SEND_GOODBYE, Step.RECV_EOF, Step.FAIL},
    State.DOWNSTREAM: {Step.RECV_DATA, Step.SEND_RECEIPT, *OPEN},
    State.DOWNSTREAM_LEAVING: {Step.RECV_DATA, Step.RECV_GOODBYE, Step.RECV_EOF, Step.FAIL},
    State.DOWNSTREAM_LEFT: {Step.SEND_RECEIPT, Step.SEND_GOODBYE, Step.RECV_EOF, Step.FAIL},
    State.CLOSED: {Step.RECV_EOF},
    State.FAILED: {Step.RECV_EOF},
}

#: A well-formed first eight bytes of each type: enough to be admitted or refused.
PREFIXES = {
    MessageType.HELLO: "01 00 0003 00000030",
    MessageType.CHALLENGE: "02 00 0003 00000050",
    MessageType.PROOF: "03 00 0003 00000020",
    MessageType.DATA: "04 00 0003 00001000",
    MessageType.RECEIPT: "05 00 0003 00001000",
    MessageType.GOODBYE: "06 00 0003 00000010",
}
#: Begins and ends in one call, so that no connection can be caught in it.
CATCHABLE = [state for state in State if state is not State.HANDSHAKEN]


def in_state(state: State) -> Connection:
    """A connection that got there by the ways of the protocol."""
    if state is State.START:
        return Connection.accept(identity_of("b"), nonce=b"A" * 16)
    pair = ConnectionPair(Side.UPSTREAM)
    if state is State.AWAIT_CHALLENGE:
        pair.dialer.data_to_send()
        return _of(pair.dialer, state)
    if state is State.AWAIT_PROOF:
        for buffer in pair.dialer.data_to_send():
            give(pair.acceptor, buffer)
        pair.acceptor.data_to_send()
        return _of(pair.acceptor, state)
    pair.established()
    one, other = pair.upstream, pair.downstream
    if state.name.startswith("DOWNSTREAM"):
        one, other = other, one
    if state.name.endswith("LEAVING") or state is State.CLOSED:
        one.close()
    if state.name.endswith("LEFT") or state is State.CLOSED:
        other.close()
    pair.exchange()
    if state is State.FAILED:
        give(one, b"\0" * 8)
        with pytest.raises(RemoteProtocolError):
            one.next_event()
        one.data_to_send()
    return _of(one, state)


def _of(connection: Connection, state: State) -> Connection:
    assert connection.state is state
    assert connection.data_to_send() == []
    return connection


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", Step)
def test_the_table_allows_exactly_these_steps(state: State, step: Step) -> None:
    assert (move(state, step) is not None) == (step in ALLOWED[state])


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    reached, found = {State.START}, {State.START}
    while found:
        found = {after for state in found for after in TRANSITIONS[state].values()} - reached
        reached |= found
    assert reached == set(State)
    for state in set(State) - FINAL - {State.HANDSHAKEN}:
        assert move(state, Step.RECV_EOF) is State.CLOSED
        assert move(state, Step.FAIL) is State.FAILED
    for state in FINAL:
        assert set(TRANSITIONS[state].values()) == {state}


@pytest.mark.parametrize("state", CATCHABLE)
@pytest.mark.parametrize("kind", MessageType)
def test_every_message_in_every_state(state: State, kind: MessageType) -> None:
    """Admitted or refused by its first eight bytes, exactly as the table says."""
    connection = in_state(state)
    give(connection, bytes.fromhex(PREFIXES[kind]))
    if state is State.FAILED:
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
    elif state is State.CLOSED or RECEIVING[kind] in ALLOWED[state]:
        assert connection.next_event() is NEED_DATA
        assert connection.state is state
    else:
        with pytest.raises(RemoteProtocolError, match=f"{kind.name} is not allowed in state"):
            connection.next_event()
        assert connection.state is State.FAILED
        said = b"".join(connection.data_to_send())
        assert said[:1] == (b"\6" if Step.SEND_GOODBYE in ALLOWED[state] else b"")


@pytest.mark.parametrize("state", CATCHABLE)
@pytest.mark.parametrize("step", [Step.SEND_DATA, Step.SEND_RECEIPT, Step.SEND_GOODBYE])
def test_every_sending_in_every_state(state: State, step: Step) -> None:
    connection = in_state(state)
    before = connection.state
    route = 0 if connection.established is None else 7

    def send() -> None:
        if step is Step.SEND_DATA:
            header = FrameHeader(ChunkId(b"fleet-01", b"T" * 16, 3, route, 0, 0), 1, False)
            connection.send_frame(header, b"sealed")
        elif step is Step.SEND_RECEIPT:
            connection.send_receipt(ChunkId(b"fleet-01", b"T" * 16, 3, route, 0, 0), b"sealed")
        else:
            connection.close()

    if step in ALLOWED[state]:
        send()
        assert connection.data_to_send()
        assert connection.state is TRANSITIONS[state][step]
        return
    if step is Step.SEND_GOODBYE:
        send()
    else:
        with pytest.raises(LocalProtocolError, match="in state"):
            send()
    assert connection.data_to_send() == []
    assert connection.state is before


@pytest.mark.parametrize("state", CATCHABLE)
def test_end_of_stream_in_every_state(state: State) -> None:
    connection = in_state(state)
    connection.receive_eof()
    if state is State.FAILED:
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
        return
    if state is not State.CLOSED:
        assert connection.next_event() == ConnectionClosed(is_clean=state in PEER_HAS_LEFT)
    assert connection.next_event() is NEED_DATA
    assert connection.state is State.CLOSED
    connection.receive_eof()
    assert connection.next_event() is NEED_DATA
