"""The handshake: attacks, refusals, and what each side learns from a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.protocol.lab import ConnectionPair, give, identity_of, make_frames

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.errors import (
    HelloRefused,
    LocalProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)
from skyplane_gateway.protocol.events import ConnectionClosed, Established, GoodbyeReceived
from skyplane_gateway.protocol.handshake import (
    Challenge,
    Side,
    acceptor_proof,
    dialer_proof,
    pack_challenge,
    pack_proof,
    unpack_hello,
)
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.states import State


def dial(identity: Identity, **changes: Any) -> Connection:
    return Connection.dial(
        identity, **{"route": 7, "side": Side.UPSTREAM, "nonce": b"D" * 16, **changes}
    )


def accept(node: str, nonce: bytes = b"A" * 16) -> Connection:
    return Connection.accept(identity_of(node), nonce=nonce)


def sent(connection: Connection) -> bytes:
    return b"".join(connection.data_to_send())


def deliver(sender: Connection, receiver: Connection) -> bytes:
    data = sent(sender)
    give(receiver, data)
    return data


def refusal(connection: Connection) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        connection.next_event()
    assert connection.state is State.FAILED
    return caught.value


@pytest.mark.parametrize("side", Side)
def test_either_side_of_a_hop_may_dial(side: Side) -> None:
    pair = ConnectionPair(side)
    events = pair.exchange()
    acceptor_is_upstream = side is Side.DOWNSTREAM
    assert events[pair.dialer] == [Established("gcp:us-west1/1", 7, acceptor_is_upstream)]
    assert events[pair.acceptor] == [Established("aws:us-east-1/0", 7, not acceptor_is_upstream)]
    assert pair.dialer.established == events[pair.dialer][0]
    assert (pair.dialer.state is State.UPSTREAM) == (side is Side.UPSTREAM)
    assert (pair.acceptor.state is State.UPSTREAM) == (side is Side.DOWNSTREAM)


def test_dialer_with_another_key_is_refused() -> None:
    """Also one that ignores the acceptor's proof."""
    acceptor = accept("b")
    dialer = dial(replace(identity_of("a"), keys={"b": b"W" * 32}))
    deliver(dialer, acceptor)
    challenge = deliver(acceptor, dialer)
    assert isinstance(refusal(dialer), HelloRefused)
    goodbye = sent(dialer)
    assert goodbye[0] == 6
    forged = bytes.fromhex("03 00 0003 00000020") + challenge[32:64]
    give(acceptor, forged)
    error = refusal(acceptor)
    assert isinstance(error, HelloRefused)
    assert error.is_permanent


def test_acceptor_with_another_key_learns_no_proof() -> None:
    dialer = dial(identity_of("a"))
    acceptor = Connection.accept(replace(identity_of("b"), keys={"a": b"W" * 32}), nonce=b"A" * 16)
    deliver(dialer, acceptor)
    deliver(acceptor, dialer)
    assert "key" in refusal(dialer).message
    assert sent(dialer)[0] == 6, "a GOODBYE, and no PROOF before it"


def test_a_refusal_gives_no_reason_to_a_peer_without_proof() -> None:
    acceptor = accept("b")
    dialer = dial(replace(identity_of("a"), fleet=b"fleet-02"))
    deliver(dialer, acceptor)
    error = refusal(acceptor)
    assert b"fleet-02".hex() in error.message
    deliver(acceptor, dialer)
    assert dialer.next_event() == GoodbyeReceived(GoodbyeReason.HELLO_REFUSED, "hello refused")
    assert dialer.next_event() == ConnectionClosed(is_clean=True)


@pytest.mark.parametrize(
    ("fleet", "node", "problem"),
    [(b"fleet-02", "b", "belongs to fleet"), (b"fleet-01", "a", "own name")],
)
def test_an_acceptor_of_another_fleet_or_of_the_same_name_is_refused(
    fleet: bytes, node: str, problem: str
) -> None:
    """The key and the proof are valid."""
    dialer = dial(identity_of("a"))
    challenge = Challenge(fleet, b"A" * 16, node)
    hello = unpack_hello(sent(dialer)[8:])
    proof = acceptor_proof(identity_of("a").keys["b"], hello, challenge)
    give(dialer, pack_challenge(challenge, proof))
    error = refusal(dialer)
    assert isinstance(error, HelloRefused)
    assert problem in error.message


@pytest.mark.parametrize("position", [*range(8, 50)])
def test_no_announced_byte_can_be_altered_on_the_way_to_the_acceptor(position: int) -> None:
    """One flipped bit in a valid HELLO: the proofs do not match."""
    dialer, acceptor = (
        dial(identity_of("aws:us-east-1/0")),
        accept("b"),
    )
    hello = bytearray(sent(dialer))
    assert len(hello) == 50
    hello[position] ^= 1
    give(acceptor, hello)
    if acceptor.state is State.AWAIT_PROOF:
        deliver(acceptor, dialer)
        assert isinstance(refusal(dialer), HelloRefused)
    else:
        refusal(acceptor)


@pytest.mark.parametrize("position", [*range(8, 78)])
def test_no_announced_byte_can_be_altered_on_the_way_to_the_dialer(position: int) -> None:
    dialer = dial(identity_of("a"))
    acceptor = accept("gcp:us-west1/1")
    deliver(dialer, acceptor)
    challenge = bytearray(sent(acceptor))
    assert len(challenge) == 78
    challenge[position] ^= 1
    give(dialer, challenge)
    dialer.receive_eof()
    if dialer.state is not State.CLOSED:
        refusal(dialer)
    assert dialer.established is None


def test_a_gateway_cannot_use_the_name_of_another() -> None:
    """A relay shares a key with each neighbour, and does not know other keys."""
    relay = identity_of("c")
    acceptor = accept("b")
    dialer = dial(replace(relay, node="a"))
    deliver(dialer, acceptor)
    deliver(acceptor, dialer)
    refusal(dialer)
    # A proof with its own key in the name of `a` is refused too.
    hello = unpack_hello(sent(dial(replace(relay, node="a")))[8:])
    proof = dialer_proof(relay.keys["b"], hello, Challenge(b"fleet-01", b"A" * 16, "b"))
    give(acceptor, pack_proof(proof))
    assert "'a' does not hold the key" in refusal(acceptor).message

    # As an acceptor it cannot use the name of a sink.
    source = dial(identity_of("a"), expected_peer="b")
    answering = Connection.accept(replace(relay, node="b"), nonce=b"A" * 16)
    deliver(source, answering)
    deliver(answering, source)
    assert "'b' does not hold the key" in refusal(source).message


def test_a_node_that_is_no_neighbour_is_refused() -> None:
    acceptor = accept("b")
    dialer = dial(replace(identity_of("a"), node="x"))
    deliver(dialer, acceptor)
    assert "'x' is no neighbour of 'b'" in refusal(acceptor).message


def test_own_messages_sent_back_prove_nothing() -> None:
    """Reflection: a peer without the key returns the gateway's own messages."""
    victim = dial(identity_of("a"))
    hello = sent(victim)
    mirror = accept("a")
    give(mirror, hello)
    assert "own name" in refusal(mirror).message

    # With a second connection to the victim: its CHALLENGE is no valid PROOF.
    first = accept("b", b"1" * 16)
    give(first, hello)
    challenge = sent(first)
    give(first, bytes.fromhex("03 00 0003 00000020") + challenge[32:64])
    assert isinstance(refusal(first), HelloRefused)


def test_hello_sent_back_is_not_a_challenge() -> None:
    victim = dial(identity_of("a"))
    give(victim, sent(victim))
    assert "HELLO is not allowed" in refusal(victim).message


def test_recorded_connection_cannot_be_replayed() -> None:
    dialer, acceptor = dial(identity_of("a")), accept("b", b"1" * 16)
    hello = deliver(dialer, acceptor)
    challenge = deliver(acceptor, dialer)
    proof = deliver(dialer, acceptor)
    assert isinstance(acceptor.next_event(), Established)

    later = accept("b", b"2" * 16)
    give(later, hello + proof)
    assert isinstance(refusal(later), HelloRefused)

    again = dial(identity_of("a"), nonce=b"E" * 16)
    give(again, challenge)
    assert isinstance(refusal(again), HelloRefused)


def test_proof_of_one_acceptor_does_not_serve_another() -> None:
    dialer = dial(identity_of("a"))
    hello = sent(dialer)
    one, two = (accept(name) for name in "bc")
    give(one, hello)
    give(two, hello)
    give(dialer, sent(one))
    give(two, sent(dialer))
    assert isinstance(refusal(two), HelloRefused)


def test_a_dialer_refuses_an_unexpected_peer() -> None:
    for name, is_welcome in (("b", True), ("c", False)):
        dialer = dial(identity_of("a"), expected_peer="b")
        acceptor = accept(name)
        deliver(dialer, acceptor)
        deliver(acceptor, dialer)
        if is_welcome:
            assert isinstance(dialer.next_event(), Established)
        else:
            assert "dialed 'b', but 'c' answered" in refusal(dialer).message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_must_be_equal_and_both_sides_learn_both(version: int) -> None:
    acceptor = accept("b")
    hello = bytearray(sent(dial(identity_of("a"))))
    hello[2:4] = version.to_bytes(2, "big")
    give(acceptor, hello)
    error = refusal(acceptor)
    assert isinstance(error, WireVersionMismatch)
    assert f"version 3, the peer {version}" in error.message

    # The GOODBYE carries the version, so a dialer of another version learns it.
    answer = bytearray(sent(acceptor))
    assert answer[0] == 6
    assert answer[2:4] == b"\0\3"
    dialer = dial(identity_of("a"))
    answer[2:4] = version.to_bytes(2, "big")
    give(dialer, answer)
    assert isinstance(refusal(dialer), WireVersionMismatch)


@pytest.mark.parametrize(
    "talk",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"SSH-2.0-x\r\n"],
    ids=["http", "tls", "ssh"],
)
def test_other_protocols_are_refused_at_once(talk: bytes) -> None:
    acceptor = accept("b")
    give(acceptor, talk[:8])
    assert "is this a gateway" in refusal(acceptor).message


@pytest.mark.parametrize(
    "data",
    [
        "04 00 0003 00000100",  # DATA
        "05 00 0003 00000100",  # RECEIPT
        "02 00 0003 00000048",  # CHALLENGE
        "03 00 0003 00000020",  # PROOF
    ],
)
def test_the_first_message_must_be_a_hello(data: str) -> None:
    """Refused after eight bytes, before any memory is allocated."""
    acceptor = accept("b")
    give(acceptor, bytes.fromhex(data))
    assert "not allowed in state start" in refusal(acceptor).message


def test_data_after_a_bad_proof_is_dropped() -> None:
    pair = ConnectionPair().established()
    frame = make_frames(b"payload")[0]
    pair.dialer.send_frame(frame.header, *frame.sealed)
    acceptor = accept("b")
    hello: Buffer = sent(dial(identity_of("a")))
    give(acceptor, hello)
    bad_proof = bytes.fromhex("03 00 0003 00000020") + b"x" * 32
    give(acceptor, bad_proof + sent(pair.dialer))
    assert isinstance(refusal(acceptor), HelloRefused)


@pytest.mark.parametrize("changes", [{"fleet": b"short"}, {"keys": {"b": b"k" * 31}}])
def test_identity_has_exact_sizes(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match="a fleet id has 8 bytes and a hello key 32"):
        replace(identity_of("a"), **changes)


def test_nonce_has_its_exact_size() -> None:
    with pytest.raises(LocalProtocolError, match="nonce"):
        Connection.accept(identity_of("a"), nonce=b"short")


def test_repr_hides_the_keys() -> None:
    shown = repr(identity_of("aws:us-east-1/0"))
    assert "\\x01" not in shown
    assert "key" not in shown
