"""Those who attack an enrolment. Nobody gets a certificate or learns anything that works."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.provision.fleet.enrolling import (
    HOST,
    INSTANCE,
    KEY,
    LAUNCH,
    NOW,
    PEER,
    SECRET,
    Talk,
    Worker,
    config_of,
    context_named,
    dialed,
    document_of,
    other_machine,
    read_line,
    server_of,
    stranger_context,
    waiting_instance,
)

from skyplane_gateway.common.dialing import directly
from skyplane_gateway.enrolment.client import EnrolmentClient
from skyplane_gateway.enrolment.documents import (
    MOST_DELIVERY_BYTES,
    MOST_MESSAGE_BYTES,
    DeliveredGateway,
    Delivery,
    EnrolmentChallenge,
    EnrolmentDocument,
    Proof,
    line_of,
    message_of,
    proof_of,
)
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.transport.pending_connections import CONTROL_PORT_LIMIT
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayUnreachable,
    NotAuthorised,
)
from skyplane_orchestration.security.authority import Authority, FleetSecret

CHALLENGE = line_of(EnrolmentChallenge("00" * 32))


def prover(document: EnrolmentDocument, certificate_der: bytes, received: list[bytes]) -> Talk:
    """Does as an instance with this token and this certificate; notes all it receives."""

    def talk(stream: ssl.SSLSocket) -> None:
        received.append(read_line(stream))
        proof = proof_of(
            bytes.fromhex(document.token_hex),
            fleet_key=document.fleet_key,
            instance=document.instance,
            challenge=bytes.fromhex(message_of(EnrolmentChallenge, received[-1]).challenge_hex),
            certificate_der=certificate_der,
        )
        stream.sendall(line_of(Proof(proof.hex())))
        received.append(read_line(stream))
        stream.sendall(b"{}\n")

    return talk


def assert_only_challenges(received: list[bytes]) -> None:
    for line in received:
        assert not line or json.loads(line).keys() == {"challenge_hex"}


# -- another machine answers at the instance's address


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (line_of(Proof("00" * 32)), NotAuthorised),
        (b'{"proof_hex": ""}\n', GatewayUnreachable),
        (b"{}\n", GatewayUnreachable),
        (b"SSH-2.0-OpenSSH_9.6\r\n", GatewayUnreachable),
        (b"[" * 9000 + b"\n", GatewayUnreachable),
        (b"\xff\x00\n", GatewayUnreachable),
        (b"", GatewayUnreachable),
        (b"x" * (2 * MOST_MESSAGE_BYTES), GatewayUnreachable),
        # Its error is not taken for one of a cloud or a store.
        (b'{"code": "quota-exceeded", "message": "buy more"}\n', NotAuthorised),
    ],
)
def test_another_machine_gets_nothing(
    answer: bytes, error: type[Exception], tmp_path: Path
) -> None:
    worker, other, received = Worker(), InstanceIdentity.create(NOW), list[bytes]()

    def talk(stream: ssl.SSLSocket) -> None:
        received.append(read_line(stream))
        stream.sendall(answer)
        received.append(read_line(stream) if answer.endswith(b"\n") else b"")

    context = server_of(other.certificate_pem, other.key_pem, tmp_path)
    with other_machine(context, talk) as port, pytest.raises(error):
        worker.enrol(port)
    assert not worker.pinned
    assert_only_challenges(received)


def test_a_machine_that_speaks_no_tls() -> None:
    # The kernel accepts the connection; nobody ever answers.
    with socket.create_server((HOST, 0)) as listener, pytest.raises(GatewayUnreachable):
        Worker().enrol(listener.getsockname()[1], timeout_s=0.1)


def test_an_answer_byte_by_byte_does_not_hold_a_worker(tmp_path: Path) -> None:
    other = InstanceIdentity.create(NOW)

    def talk(stream: ssl.SSLSocket) -> None:
        read_line(stream)
        for _ in range(MOST_MESSAGE_BYTES):
            stream.sendall(b"x")

    ticks = itertools.count()
    context = server_of(other.certificate_pem, other.key_pem, tmp_path)
    with (
        other_machine(context, talk) as port,
        EnrolmentClient(
            partial(directly, HOST, port),
            HOST,
            Worker().authority.enrolment_context(),
            100.0,
            monotonic=lambda: next(ticks),
        ) as client,
        pytest.raises(GatewayUnreachable, match="within 100 s"),
    ):
        client.prove(b"0" * 32)


# -- callers that are not the fleet's orchestrator

OTHER_SECRET = FleetSecret(b"the secret of somebody else, for a fleet of its own")

#: The client contexts that an attacker can have, from the fleet's authority and a directory.
ATTACKERS: dict[str, Callable[[Authority, Path], ssl.SSLContext]] = {
    "without a certificate": lambda authority, directory: stranger_context(),
    "with another secret": lambda authority, directory: Authority(
        OTHER_SECRET, KEY
    ).enrolment_context(),
    "the orchestrator of another fleet": lambda authority, directory: Authority(
        SECRET, "cd" * 16
    ).enrolment_context(),
    "who derives from the token": lambda authority, directory: Authority(
        FleetSecret(authority.enrolment_token(INSTANCE, LAUNCH)), KEY
    ).enrolment_context(),
    "a gateway of the fleet": lambda authority, directory: context_named(
        authority, authority.expected_uri(PEER), directory
    ),
    "a gateway with a misleading name": lambda authority, directory: context_named(
        authority, authority.expected_uri("orchestrator"), directory
    ),
}
attackers = pytest.mark.parametrize("attacker", ATTACKERS)


def ask(port: int, context: ssl.SSLContext, *lines: bytes) -> list[bytes]:
    """What the instance answers; empty where it closes the connection."""
    answers = []
    with suppress(OSError), dialed(port, context) as stream:
        for line in lines:
            stream.sendall(line)
            answers.append(read_line(stream))
    return answers


@attackers
def test_no_one_but_the_orchestrator_learns_a_proof_or_configures(
    attacker: str, tmp_path: Path
) -> None:
    worker = Worker()
    context = ATTACKERS[attacker](worker.authority, tmp_path)
    delivery = line_of_a_delivery(worker)
    with waiting_instance(worker.authority, tmp_path) as instance:
        assert not any(ask(instance.port, context, CHALLENGE, delivery))
        assert not any(ask(instance.port, context, delivery))
        assert not instance.deliveries
        assert worker.enrol(instance.port) == worker.pinned[0]


def line_of_a_delivery(worker: Worker) -> bytes:
    own = worker.authority.issue(worker.authority.expected_uri(INSTANCE), 60.0)
    return line_of(
        Delivery({INSTANCE: DeliveredGateway(config_of(worker.authority), own.certificate_pem)})
    )


@attackers
def test_one_in_the_middle_cannot_forward(attacker: str, tmp_path: Path) -> None:
    """It ends the worker's TLS with a key of its own, and dials the instance itself."""
    worker, middle, received = Worker(), InstanceIdentity.create(NOW), list[bytes]()
    towards_instance = ATTACKERS[attacker](worker.authority, tmp_path)
    towards_worker = server_of(middle.certificate_pem, middle.key_pem, tmp_path)
    with waiting_instance(worker.authority, tmp_path) as instance:

        def forward(stream: ssl.SSLSocket) -> None:
            with dialed(instance.port, towards_instance) as other:
                received.append(read_line(stream))
                other.sendall(received[-1])
                answer = read_line(other)
                if answer:
                    stream.sendall(answer)
                    received.append(read_line(stream))

        with (
            other_machine(towards_worker, forward) as port,
            pytest.raises((GatewayUnreachable, NotAuthorised)),
        ):
            worker.enrol(port)
        assert not instance.deliveries
    assert not worker.pinned
    assert_only_challenges(received)


def test_a_proof_of_the_instance_is_worth_nothing_with_another_key(tmp_path: Path) -> None:
    """Even if one in the middle got the proof for this very challenge."""
    worker, middle, received = Worker(), InstanceIdentity.create(NOW), list[bytes]()
    shown_by_instance = InstanceIdentity.create(NOW).certificate_der
    talk = prover(document_of(worker.authority), shown_by_instance, received)
    context = server_of(middle.certificate_pem, middle.key_pem, tmp_path)
    with other_machine(context, talk) as port, pytest.raises(NotAuthorised, match="in its place"):
        worker.enrol(port)
    assert not worker.pinned
    assert_only_challenges(received)


def test_a_recorded_proof_answers_no_other_challenge(tmp_path: Path) -> None:
    """Even with the instance's own key and certificate."""
    worker, received = Worker(), list[bytes]()
    with waiting_instance(worker.authority, tmp_path) as instance:
        recorded = ask(instance.port, worker.authority.enrolment_context(), CHALLENGE)[0]
    assert json.loads(recorded).keys() == {"proof_hex"}

    def talk(stream: ssl.SSLSocket) -> None:
        received.append(read_line(stream))
        stream.sendall(recorded)
        received.append(read_line(stream))

    context = server_of(instance.identity.certificate_pem, instance.identity.key_pem, tmp_path)
    with other_machine(context, talk) as port, pytest.raises(NotAuthorised):
        worker.enrol(port)
    assert_only_challenges(received)


def test_a_proof_of_another_fleet_is_refused(tmp_path: Path) -> None:
    worker, other = Worker(), InstanceIdentity.create(NOW)
    document = replace(document_of(worker.authority), fleet_key="cd" * 16)
    talk = prover(document, other.certificate_der, [])
    context = server_of(other.certificate_pem, other.key_pem, tmp_path)
    with other_machine(context, talk) as port, pytest.raises(NotAuthorised):
        worker.enrol(port)


def test_a_worker_with_another_secret_is_told_so(tmp_path: Path) -> None:
    with (
        waiting_instance(Worker().authority, tmp_path) as instance,
        pytest.raises(GatewayUnreachable, match="another fleet secret"),
    ):
        Worker(Authority(OTHER_SECRET, KEY)).enrol(instance.port)


# -- one reads the user data


def test_user_data_read_after_the_enrolment_is_of_no_use(tmp_path: Path) -> None:
    worker, thief, received = Worker(), InstanceIdentity.create(NOW), list[bytes]()
    with waiting_instance(worker.authority, tmp_path) as instance:
        first = worker.enrol(instance.port)
    talk = prover(instance.document, thief.certificate_der, received)
    context = server_of(thief.certificate_pem, thief.key_pem, tmp_path)
    with other_machine(context, talk) as port, pytest.raises(NotAuthorised, match=first):
        worker.enrol(port)
    assert worker.pinned == [first]
    assert_only_challenges(received)


def test_user_data_gives_no_key_of_the_fleet(tmp_path: Path) -> None:
    authority = Authority(SECRET, KEY)
    document = document_of(authority)
    derived = Authority(FleetSecret(bytes.fromhex(document.token_hex)), document.fleet_key)
    assert derived.hello_key(INSTANCE, PEER) != authority.hello_key(INSTANCE, PEER)
    assert derived.sealing_key("00", "01") != authority.sealing_key("00", "01")
    assert derived.enrolment_token(PEER, LAUNCH) != authority.enrolment_token(PEER, LAUNCH)
    forged = derived.issue(authority.expected_uri(INSTANCE), 60.0).certificate_pem
    with pytest.raises(ConfigurationInvalid, match="not one of the fleet's authority"):
        InstanceIdentity.create(NOW).require_own(
            forged,
            authority_pem=document.authority_pem,
            uri=authority.expected_uri(INSTANCE),
        )
    private = (SECRET.value, authority.hello_key(INSTANCE, PEER), derived.hello_key(INSTANCE, PEER))
    assert not any(key.hex() in document.to_json() for key in private)


def test_one_who_reads_user_data_first_and_answers_at_the_address_passes(tmp_path: Path) -> None:
    """The limit of the exchange, which docs/explanation/security.md states.

    The instance itself is refused from then on, and ends after `start_within_s`.
    """
    worker, thief, received = Worker(), InstanceIdentity.create(NOW), list[bytes]()
    talk = prover(document_of(worker.authority), thief.certificate_der, received)
    context = server_of(thief.certificate_pem, thief.key_pem, tmp_path)
    with other_machine(context, talk) as port:
        taken = worker.enrol(port)
    assert "certificate_pem" in received[-1].decode()
    with waiting_instance(worker.authority, tmp_path) as instance:
        with pytest.raises(NotAuthorised, match=taken):
            worker.enrol(instance.port)
        assert not instance.deliveries


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    worker, received = Worker(), list[bytes]()
    key = ec.generate_private_key(ec.SECP256R1())
    own = InstanceIdentity.create(NOW)
    name = x509.load_der_x509_certificate(own.certificate_der).subject
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW.replace(year=NOW.year + 1, day=1))
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    context = server_of(
        certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem, tmp_path
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    talk = prover(document_of(worker.authority), der, received)
    with other_machine(context, talk) as port, pytest.raises(NotAuthorised, match="Ed25519"):
        worker.enrol(port)
    assert not worker.pinned
    assert_only_challenges(received)


# -- peers that waste an instance's time or memory


def test_silent_and_chattering_connections_do_not_keep_the_orchestrator_out(
    tmp_path: Path,
) -> None:
    worker = Worker()
    with waiting_instance(worker.authority, tmp_path) as instance, ExitStack() as stack:
        for number in range(3 * CONTROL_PORT_LIMIT):
            # A closed one is no error: the instance makes room for others.
            with suppress(OSError):
                stranger = socket.create_connection((HOST, instance.port), timeout=10)
                stack.callback(stranger.close)
                stranger.sendall((b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.0\r\n")[number % 3])
        assert worker.enrol(instance.port) == worker.pinned[0]


def test_a_worker_that_hangs_in_the_middle_is_cut_off(tmp_path: Path) -> None:
    worker = Worker()
    context = worker.authority.enrolment_context()
    with waiting_instance(worker.authority, tmp_path, exchange_timeout_s=0.1) as instance:
        with dialed(instance.port, context) as stream:
            assert read_line(stream) == b""
        with dialed(instance.port, context) as stream:
            stream.sendall(CHALLENGE)
            assert b"proof_hex" in read_line(stream)
            assert read_line(stream) == b""


def test_more_workers_at_once_than_a_fleet_has_are_refused(tmp_path: Path) -> None:
    worker = Worker()
    context = worker.authority.enrolment_context()
    with waiting_instance(worker.authority, tmp_path) as instance, ExitStack() as stack:
        for _ in range(8):
            hanging = stack.enter_context(dialed(instance.port, context))
            hanging.sendall(CHALLENGE)
            assert b"proof_hex" in read_line(hanging)
        with pytest.raises(GatewayUnreachable):
            worker.enrol(instance.port)


def test_a_gateway_that_was_taken_over_cannot_hold_many_connections(tmp_path: Path) -> None:
    worker = Worker()
    context = context_named(worker.authority, worker.authority.expected_uri(PEER), tmp_path)
    with waiting_instance(worker.authority, tmp_path) as instance, ExitStack() as stack:
        for _ in range(80):
            # Each is refused, and stays open at this end.
            with suppress(OSError):
                stack.enter_context(dialed(instance.port, context))
        assert worker.enrol(instance.port) == worker.pinned[0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"x" * (2 * MOST_MESSAGE_BYTES) + b"\n", None),
        (b"x" * (2 * MOST_DELIVERY_BYTES + 1), None),
        (b"[" * 9000 + b"\n", "configuration-invalid"),
        (b"\xff\n", "configuration-invalid"),
        (b"null\n", "configuration-invalid"),
        (b'{"challenge_hex": 5}\n', "configuration-invalid"),
        (b'{"challenge_hex": "00"}\n', "configuration-invalid"),
        (line_of(EnrolmentChallenge("00" * 32))[:-2] + b', "more": 1}\n', "configuration-invalid"),
    ],
)
def test_garbage_from_a_worker_ends_its_connection_only(
    line: bytes, says: str | None, tmp_path: Path
) -> None:
    worker = Worker()
    with waiting_instance(worker.authority, tmp_path) as instance:
        answers = ask(instance.port, worker.authority.enrolment_context(), line)
        codes = [json.loads(answer)["code"] for answer in answers if answer]
        assert codes == ([] if says is None else [says])
        assert worker.enrol(instance.port) == worker.pinned[0]


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b'{"gateways": []}\n',
        b'{"gateways": {"a": {"config": {}, "certificate_pem": ""}}}\n',
        b'{"gateways": {"a": {"config": {"node": "a", "directory": 7}}}}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_broken_delivery_is_refused(line: bytes, tmp_path: Path) -> None:
    worker = Worker()
    with waiting_instance(worker.authority, tmp_path) as instance:
        answers = ask(instance.port, worker.authority.enrolment_context(), CHALLENGE, line)
        assert json.loads(answers[1])["code"] == "configuration-invalid"
        assert not instance.deliveries
