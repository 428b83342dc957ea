"""The states of a connection, and every transition between them.

Two rules hold here:

1. Every change of state is in `TRANSITIONS`. `Connection` changes state only with `move`,
   which refuses every step that the table does not list. No other code checks whether a
   message may come now, so no check can be forgotten.
2. This file does not know which side dialed, keys, or the encoding of messages.

Theory. A connection has two independent asymmetries. The *dialer* sends first in the
handshake. In the data phase the *upstream* side sends frames and the *downstream* side sends
receipts. Either side may be the dialer, because NAT or a private subnet decides that. The
handshake ends in HANDSHAKEN. Both sides leave it at once and without a message: the HELLO
names the dialer's side, so this side is UPSTREAM or DOWNSTREAM. From then on the direction
of data is part of the state. A frame in the wrong direction is as impossible as a frame
before the handshake.

        START --send HELLO--> AWAIT_CHALLENGE --CHALLENGE--> HANDSHAKEN
        START --recv HELLO--> AWAIT_PROOF     --PROOF------> HANDSHAKEN
        HANDSHAKEN --be upstream--> UPSTREAM      --be downstream--> DOWNSTREAM

GOODBYE means that its sender sends nothing more; the sender still receives. It is LEAVING,
and takes messages in flight: the last receipts of a draining sink, or frames that a relay
sent before it received the GOODBYE. Upstream cannot use a peer that has left, because the
receipts of more frames cannot return: UPSTREAM_LEFT can only send GOODBYE. Downstream may
still send receipts for frames that it has, in DOWNSTREAM_LEFT. Two GOODBYEs make CLOSED.
Before the end of the handshake one GOODBYE closes.

The end of the stream closes from any state; it is clean if the peer had sent GOODBYE. A
violation by the peer leads to FAILED from any state. Nothing that the peer sends afterwards
has an effect, but queued messages may be flushed, such as the GOODBYE with the reason.
CLOSED and FAILED are final.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from skyplane_gateway.protocol.messages import MessageType


class State(Enum):
    """State of a connection, seen from this side."""

    START = "start"
    AWAIT_CHALLENGE = "await-challenge"
    AWAIT_PROOF = "await-proof"
    HANDSHAKEN = "handshaken"
    UPSTREAM = "upstream"
    UPSTREAM_LEAVING = "upstream-leaving"
    UPSTREAM_LEFT = "upstream-left"
    DOWNSTREAM = "downstream"
    DOWNSTREAM_LEAVING = "downstream-leaving"
    DOWNSTREAM_LEFT = "downstream-left"
    CLOSED = "closed"
    FAILED = "failed"

    __hash__ = object.__hash__  # Of its name it would be slow, and is wanted for each message.


class Step(Enum):
    SEND_HELLO = "send HELLO"
    RECV_HELLO = "recv HELLO"
    RECV_CHALLENGE = "recv CHALLENGE"
    RECV_PROOF = "recv PROOF"
    BE_UPSTREAM = "be upstream"
    BE_DOWNSTREAM = "be downstream"
    SEND_DATA = "send DATA"
    RECV_DATA = "recv DATA"
    SEND_RECEIPT = "send RECEIPT"
    RECV_RECEIPT = "recv RECEIPT"
    SEND_GOODBYE = "send GOODBYE"
    RECV_GOODBYE = "recv GOODBYE"
    RECV_EOF = "recv EOF"
    FAIL = "peer broke the protocol"

    __hash__ = object.__hash__


#: The step of an arriving message, by type.
RECEIVING: Final = {
    MessageType.HELLO: Step.RECV_HELLO,
    MessageType.CHALLENGE: Step.RECV_CHALLENGE,
    MessageType.PROOF: Step.RECV_PROOF,
    MessageType.DATA: Step.RECV_DATA,
    MessageType.RECEIPT: Step.RECV_RECEIPT,
    MessageType.GOODBYE: Step.RECV_GOODBYE,
}

#: Steps of every state that is not final.
_ALWAYS: Final = {Step.RECV_EOF: State.CLOSED, Step.FAIL: State.FAILED}
#: In the handshake one GOODBYE from either side closes.
_UNPROVEN: Final = {**_ALWAYS, Step.SEND_GOODBYE: State.CLOSED, Step.RECV_GOODBYE: State.CLOSED}

TRANSITIONS: Final[dict[State, dict[Step, State]]] = {
    State.START: {
        **_UNPROVEN,
        Step.SEND_HELLO: State.AWAIT_CHALLENGE,
        Step.RECV_HELLO: State.AWAIT_PROOF,
    },
    State.AWAIT_CHALLENGE: {**_UNPROVEN, Step.RECV_CHALLENGE: State.HANDSHAKEN},
    State.AWAIT_PROOF: {**_UNPROVEN, Step.RECV_PROOF: State.HANDSHAKEN},
    State.HANDSHAKEN: {Step.BE_UPSTREAM: State.UPSTREAM, Step.BE_DOWNSTREAM: State.DOWNSTREAM},
    State.UPSTREAM: {
        **_ALWAYS,
        Step.SEND_DATA: State.UPSTREAM,
        Step.RECV_RECEIPT: State.UPSTREAM,
        Step.SEND_GOODBYE: State.UPSTREAM_LEAVING,
        Step.RECV_GOODBYE: State.UPSTREAM_LEFT,
    },
    State.UPSTREAM_LEAVING: {
        **_ALWAYS,
        Step.RECV_RECEIPT: State.UPSTREAM_LEAVING,
        Step.RECV_GOODBYE: State.CLOSED,
    },
    State.UPSTREAM_LEFT: {**_ALWAYS, Step.SEND_GOODBYE: State.CLOSED},
    State.DOWNSTREAM: {
        **_ALWAYS,
        Step.RECV_DATA: State.DOWNSTREAM,
        Step.SEND_RECEIPT: State.DOWNSTREAM,
        Step.SEND_GOODBYE: State.DOWNSTREAM_LEAVING,
        Step.RECV_GOODBYE: State.DOWNSTREAM_LEFT,
    },
    State.DOWNSTREAM_LEAVING: {
        **_ALWAYS,
        Step.RECV_DATA: State.DOWNSTREAM_LEAVING,
        Step.RECV_GOODBYE: State.CLOSED,
    },
    State.DOWNSTREAM_LEFT: {
        **_ALWAYS,
        Step.SEND_RECEIPT: State.DOWNSTREAM_LEFT,
        Step.SEND_GOODBYE: State.CLOSED,
    },
    State.CLOSED: {Step.RECV_EOF: State.CLOSED},
    State.FAILED: {Step.RECV_EOF: State.FAILED},
}

#: No step leaves these states; bytes that arrive are dropped.
FINAL: Final = frozenset({State.CLOSED, State.FAILED})

#: The peer has sent GOODBYE: the end of its stream is clean.
PEER_HAS_LEFT: Final = frozenset({State.UPSTREAM_LEFT, State.DOWNSTREAM_LEFT})


def move(state: State, step: Step) -> State | None:
    """The state after `step`, or None where it is not allowed."""
    return TRANSITIONS[state].get(step)
