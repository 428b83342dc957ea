"""The states of a connection, and every transition between them.

Two rules hold here:

1. Every change of state is in `TRANSITIONS`. `Connection` moves only by `move`, and
   whatever the table does not list is refused: there is no other check of "may this
   message come now", and so none that can be forgotten.
2. This file does not know which side dialled, what a key is or how bytes look.

Theory. A connection has two independent asymmetries. The *dialer* speaks first in the
handshake; the *upstream* side sends frames in the data phase, the *downstream* side
sends receipts. Either may be either, because NAT or a private subnet decides who can
dial. The handshake ends in HANDSHAKEN, which both sides leave at once and without a
message: what the HELLO said about the dialer's side decides whether this side is
UPSTREAM or DOWNSTREAM. From there on the direction of data is part of the state, and
a frame that flows the wrong way is as impossible as a frame before the handshake.

        START --send HELLO--> AWAIT_CHALLENGE --CHALLENGE--> HANDSHAKEN
        START --recv HELLO--> AWAIT_PROOF     --PROOF------> HANDSHAKEN
        HANDSHAKEN --be upstream--> UPSTREAM      --be downstream--> DOWNSTREAM

GOODBYE means "I will send nothing more"; it does not mean "I will not listen". The
side that said it is LEAVING and still takes what is on its way: a draining sink's last
receipts, the frames that a relay had sent before it was told. Upstream has nothing
left to do for a peer that has gone (frames whose receipts cannot come back are
wasted), so UPSTREAM_LEFT can only say GOODBYE; downstream may still answer what it
has taken, in DOWNSTREAM_LEFT. Two GOODBYEs make CLOSED. Before the handshake is over
there is nothing to wait for, and one GOODBYE closes.

The end of the stream closes from anywhere; whether it was clean is whether the peer
had said GOODBYE. A breach by the peer is FAILED from anywhere; nothing that it sends
afterwards has any effect, and what was in the send queue (the GOODBYE that tells it
why, if the state allowed one) may still be flushed. CLOSED and FAILED are final.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from skyplane_gateway.protocol.messages import MessageType


class State(Enum):
    """Where a connection stands, seen from this side."""

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


class Step(Enum):
    """What can happen to a connection."""

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


#: The step that a message of each type is when it arrives.
RECEIVING: Final = {
    MessageType.HELLO: Step.RECV_HELLO,
    MessageType.CHALLENGE: Step.RECV_CHALLENGE,
    MessageType.PROOF: Step.RECV_PROOF,
    MessageType.DATA: Step.RECV_DATA,
    MessageType.RECEIPT: Step.RECV_RECEIPT,
    MessageType.GOODBYE: Step.RECV_GOODBYE,
}

#: What holds in every state that is not final, unless the state says otherwise.
_ALWAYS: Final = {Step.RECV_EOF: State.CLOSED, Step.FAIL: State.FAILED}
#: In the handshake one GOODBYE, from either side, is the end.
_UNPROVEN: Final = {
    **_ALWAYS,
    Step.SEND_GOODBYE: State.CLOSED,
    Step.RECV_GOODBYE: State.CLOSED,
}

TRANSITIONS: Final[dict[State, dict[Step, State]]] = {
    State.START: {
        **_UNPROVEN,
        Step.SEND_HELLO: State.AWAIT_CHALLENGE,
        Step.RECV_HELLO: State.AWAIT_PROOF,
    },
    State.AWAIT_CHALLENGE: {**_UNPROVEN, Step.RECV_CHALLENGE: State.HANDSHAKEN},
    State.AWAIT_PROOF: {**_UNPROVEN, Step.RECV_PROOF: State.HANDSHAKEN},
    State.HANDSHAKEN: {
        Step.BE_UPSTREAM: State.UPSTREAM,
        Step.BE_DOWNSTREAM: State.DOWNSTREAM,
    },
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

#: Nothing leaves these, and bytes that arrive in them are dropped.
FINAL: Final = frozenset({State.CLOSED, State.FAILED})

#: The peer's GOODBYE has been seen: the end of the stream is then a clean one.
PEER_HAS_LEFT: Final = frozenset({State.UPSTREAM_LEFT, State.DOWNSTREAM_LEFT})


def move(state: State, step: Step) -> State | None:
    """The state after `step`, or None where it is not allowed."""
    return TRANSITIONS[state].get(step)
