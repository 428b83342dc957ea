"""The sans-io connection: bytes in, events out, buffers to send. No socket, no clock.

    connection = Connection.dial(identity, route=7, side=Side.UPSTREAM, nonce=rng.randbytes(16))
    transport.writelines(connection.data_to_send())
    # BufferedProtocol.get_buffer and buffer_updated call the methods of the same names; then
    while (event := connection.next_event()) is not NEED_DATA: ...

Timeouts belong to the caller: a peer may send nothing, or half a message. Memory of one
connection: 64 KiB of staging (1 KiB until the peer has proven itself), one incomplete message
of at most 1 MiB, and the events that the caller has not taken. A caller that takes all
events after every `buffer_updated` accumulates none. A payload needs no memory here where
`claim_place` gives it its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.protocol import handshake
from skyplane_gateway.protocol._reader import ClaimPlace, Message, MessageReader
from skyplane_gateway.protocol.errors import HelloRefused, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.events import (
    NEED_DATA,
    ConnectionClosed,
    Established,
    Event,
    FramePlaced,
    FrameReceived,
    GoodbyeReceived,
    NeedData,
    ReceiptReceived,
)
from skyplane_gateway.protocol.handshake import Challenge, Hello, Side
from skyplane_gateway.protocol.limits import FLEET_BYTES, KEY_BYTES, NONCE_BYTES
from skyplane_gateway.protocol.messages import (
    ChunkId,
    FrameHeader,
    Header,
    MessageType,
    Prefix,
    pack_frame_header,
    pack_goodbye,
    pack_receipt_header,
    unpack_frame_header,
    unpack_goodbye,
    unpack_receipt_header,
)
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.states import FINAL, PEER_HAS_LEFT, RECEIVING, State, Step, move

#: Text of a GOODBYE to a peer without proof; it gives no reason.
_REFUSAL: Final = "hello refused"


@dataclass(frozen=True, slots=True)
class Identity:
    """This gateway's identity, for all its connections.

    Attributes:
        fleet: the fleet's id, 8 bytes.
        node: this gateway's name, unique in the fleet, at most 128 bytes.
        keys: neighbour -> the hello key shared with it, 32 bytes.
    """

    fleet: bytes
    node: str
    keys: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        lengths = {len(key) for key in self.keys.values()}
        if len(self.fleet) != FLEET_BYTES or not lengths <= {KEY_BYTES}:
            raise LocalProtocolError(
                f"a fleet id has {FLEET_BYTES} bytes and a hello key {KEY_BYTES}, "
                f"not {len(self.fleet)} and {sorted(lengths)}"
            )


class Connection:
    """The state machine of `states`, driven by bytes and calls. Make it with `dial` or `accept`."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise LocalProtocolError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._identity = identity
        self._nonce = nonce
        self._state = State.START
        #: Gives payloads their places; the connection calls it with the heads of frames.
        self.claim_place: ClaimPlace = lambda *_: None
        self._reader = MessageReader(
            self._admit, self._admit_head, lambda *frame: self.claim_place(*frame)
        )
        self._events: deque[Event] = deque()
        self._outgoing: list[Buffer] = []
        self._failure: RemoteProtocolError | None = None
        #: The dialer's HELLO. An acceptor replaces it by the peer's before any use: in
        #: AWAIT_PROOF, where it is not proven yet.
        self.hello = Hello(identity.fleet, nonce, 0, Side.UPSTREAM, identity.node)
        self._expected_peer: str | None = None
        self._expected_proof = b""
        #: The `Established` event; None before it.
        self.established: Established | None = None
        self._peer = Established("", 0, False)

    @classmethod
    def dial(
        cls,
        identity: Identity,
        *,
        route: int,
        side: Side,
        nonce: bytes,
        expected_peer: str | None = None,
    ) -> Connection:
        """The side that opens the TCP connection; its HELLO is ready to send.

        Args:
            route: number of the connection's route.
            side: this side: UPSTREAM sends frames, DOWNSTREAM sends receipts.
            nonce: 16 random bytes, used once.
            expected_peer: refuse an acceptor of another name.

        Raises:
            LocalProtocolError: a value does not fit.
        """
        connection = cls(identity, nonce)
        connection._expected_peer = expected_peer
        connection.hello = Hello(identity.fleet, nonce, route, side, identity.node)
        connection._send(Step.SEND_HELLO, handshake.pack_hello(connection.hello))
        return connection

    @classmethod
    def accept(cls, identity: Identity, *, nonce: bytes) -> Connection:
        """The side that was dialed; the peer's HELLO names the route and the sides.

        After `Established` the caller may refuse the route by `close(UNKNOWN_ROUTE)`.
        """
        return cls(identity, nonce)

    # ------------------------------------------------------------------ inspection

    @property
    def state(self) -> State:
        return self._state

    # -------------------------------------------------------------------- incoming

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Where to put the next bytes, as in `asyncio.BufferedProtocol`; never empty.

        Inside a large message it is exactly the missing part, so `hint` is not needed.
        """
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Process `count` bytes in the buffer of the last `get_buffer`.

        `next_event` raises the errors of the peer. In CLOSED and FAILED bytes are dropped.
        """
        if self._state in FINAL:
            return
        try:
            for message in self._reader.updated(count):
                self._handle(message)
                if self._state in FINAL:
                    break
        except RemoteProtocolError as error:
            is_proven = self.established is not None
            if move(self._state, Step.SEND_GOODBYE) is not None:
                text = error.message if is_proven else _REFUSAL
                self._outgoing.append(pack_goodbye(error.reason, text))
            self._move(Step.FAIL)
            self._failure = error

    def receive_eof(self) -> None:
        """The peer's stream has ended, or the connection was lost."""
        self._move(Step.RECV_EOF)

    def next_event(self) -> Event | NeedData:
        """The next event, or `NEED_DATA`.

        Raises:
            RemoteProtocolError: the peer broke the protocol; every later call raises it too.
                Flush `data_to_send` (it may hold a GOODBYE), then close the transport.
        """
        if self._events:
            return self._events.popleft()
        if self._failure is not None:
            raise self._failure
        return NEED_DATA

    # -------------------------------------------------------------------- outgoing

    def data_to_send(self) -> list[Buffer]:
        """Buffers to write, in order; payloads are not copied."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def send_frame(self, header: FrameHeader, *sealed: Buffer) -> None:
        """Queue a frame from `ChunkFramer`, or a received one to forward.

        Raises:
            LocalProtocolError: not allowed in this state, another fleet or route, or too large.
        """
        self._check_ids(header.chunk_id)
        outer = pack_frame_header(header, total_bytes(sealed))
        self._send(Step.SEND_DATA, outer, *sealed)

    def send_receipt(self, header: ChunkId, *sealed: Buffer) -> None:
        """Queue a receipt from `seal_receipt`, or a received one; errors as `send_frame`."""
        self._check_ids(header)
        outer = pack_receipt_header(header, total_bytes(sealed))
        self._send(Step.SEND_RECEIPT, outer, *sealed)

    def close(self, reason: GoodbyeReason = GoodbyeReason.DONE, text: str = "") -> None:
        """Queue a GOODBYE: this side sends nothing more. No effect where it is not allowed.

        The peer's messages still arrive, until its own GOODBYE or the end of its stream.
        `text` is for people and is cut to 512 bytes.
        """
        if move(self._state, Step.SEND_GOODBYE) is not None:
            self._send(Step.SEND_GOODBYE, pack_goodbye(reason, text))

    # -------------------------------------------------------------------- internal

    def _move(self, step: Step) -> None:
        before = self._state
        after = move(before, step)
        if after is None:
            raise LocalProtocolError(f"cannot {step.value} in state {before.value}")
        self._state = after
        if after is State.CLOSED and before is not State.CLOSED:
            is_clean = step is not Step.RECV_EOF or before in PEER_HAS_LEFT
            self._events.append(ConnectionClosed(is_clean))
        if after in FINAL:
            self._reader.drop()

    def _send(self, step: Step, *buffers: Buffer) -> None:
        self._move(step)
        self._outgoing.extend(buffers)

    def _check_ids(self, chunk: ChunkId) -> None:
        if chunk.fleet != self._identity.fleet or chunk.route != self._peer.route:
            raise LocalProtocolError(
                f"{chunk} does not belong on a connection of route {self._peer.route}"
            )

    def _admit(self, prefix: Prefix) -> None:
        if move(self._state, RECEIVING[prefix.kind]) is None:
            raise RemoteProtocolError(
                f"{prefix.kind.name} is not allowed in state {self._state.value}"
            )

    def _admit_head(self, prefix: Prefix, head: memoryview) -> Header:
        header: FrameHeader | ChunkId
        if prefix.kind is MessageType.DATA:
            header = unpack_frame_header(head)
            chunk = header.chunk_id
        elif prefix.kind is MessageType.RECEIPT:
            header = chunk = unpack_receipt_header(head)
        else:
            return None
        if chunk.fleet != self._identity.fleet or chunk.route != self._peer.route:
            raise RemoteProtocolError(
                f"{prefix.kind.name} of fleet {chunk.fleet.hex()}, route {chunk.route} "
                f"on a connection of route {self._peer.route}"
            )
        return header

    def _handle(self, message: Message) -> None:
        kind, header = message.kind, message.header
        if message.claim is not None:
            self._move(Step.RECV_DATA)
            self._events.append(FramePlaced(message.claim, message.body))
        elif isinstance(header, FrameHeader):
            self._move(Step.RECV_DATA)
            self._events.append(FrameReceived(header, message.body))
        elif isinstance(header, ChunkId):
            self._move(Step.RECV_RECEIPT)
            self._events.append(ReceiptReceived(header, message.body))
        elif kind is MessageType.GOODBYE:
            event = GoodbyeReceived(*unpack_goodbye(message.body))
            self._events.append(event)
            self._move(Step.RECV_GOODBYE)
        elif kind is MessageType.HELLO:
            self._handle_hello(handshake.unpack_hello(message.body))
        elif kind is MessageType.CHALLENGE:
            self._handle_challenge(*handshake.unpack_challenge(message.body))
        else:
            self._handle_proof(handshake.unpack_proof(message.body))

    def _handle_hello(self, hello: Hello) -> None:
        self._check_peer(hello.fleet, hello.node)
        self.hello = hello
        challenge = Challenge(self._identity.fleet, self._nonce, self._identity.node)
        key = self._key_of(hello.node)
        self._expected_proof = handshake.dialer_proof(key, hello, challenge)
        proof = handshake.acceptor_proof(key, hello, challenge)
        self._move(Step.RECV_HELLO)
        self._outgoing.append(handshake.pack_challenge(challenge, proof))

    def _handle_challenge(self, challenge: Challenge, proof: bytes) -> None:
        hello = self.hello
        self._check_peer(challenge.fleet, challenge.node)
        if self._expected_peer is not None and challenge.node != self._expected_peer:
            raise HelloRefused(f"dialed {self._expected_peer!r}, but {challenge.node!r} answered")
        key = self._key_of(challenge.node)
        if not handshake.is_proof(handshake.acceptor_proof(key, hello, challenge), proof):
            raise HelloRefused(
                f"{challenge.node!r} does not hold the key that it shares with "
                f"{self._identity.node!r}; does it belong to another fleet?"
            )
        self._outgoing.append(handshake.pack_proof(handshake.dialer_proof(key, hello, challenge)))
        self._move(Step.RECV_CHALLENGE)
        self._establish(challenge.node, hello.route, peer_is_upstream=hello.side is Side.DOWNSTREAM)

    def _handle_proof(self, proof: bytes) -> None:
        hello = self.hello
        if not handshake.is_proof(self._expected_proof, proof):
            raise HelloRefused(
                f"{hello.node!r} does not hold the key that it shares with {self._identity.node!r}"
            )
        self._move(Step.RECV_PROOF)
        self._establish(hello.node, hello.route, peer_is_upstream=hello.side is Side.UPSTREAM)

    def _check_peer(self, fleet: bytes, node: str) -> None:
        if fleet != self._identity.fleet:
            raise HelloRefused(
                f"{node!r} belongs to fleet {fleet.hex()}, not to {self._identity.fleet.hex()}"
            )
        if node == self._identity.node:
            raise HelloRefused(f"the peer uses this gateway's own name {node!r}")

    def _key_of(self, node: str) -> bytes:
        key = self._identity.keys.get(node)
        if key is None:
            raise HelloRefused(f"{node!r} is no neighbour of {self._identity.node!r}")
        return key

    def _establish(self, node: str, route: int, *, peer_is_upstream: bool) -> None:
        self._move(Step.BE_DOWNSTREAM if peer_is_upstream else Step.BE_UPSTREAM)
        self._reader.trust(sends_frames=peer_is_upstream)
        self._peer = self.established = Established(node, route, peer_is_upstream)
        self._events.append(self.established)
