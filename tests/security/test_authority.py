from __future__ import annotations

import os
import pickle
import socket
import ssl
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from skyplane_gateway.common.identifiers import node_of_uri, orchestrator_uri
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.security.authority import (
    Authority,
    FleetSecret,
    default_secret_path,
)
from skyplane_orchestration.security.certificates import IssuedCertificate

SECRET = FleetSecret.from_text("correct horse battery staple, thirty-two and more")
NODE = "aws:us-east-1/0"
DAY_S = 86400.0
NOW = 1_700_000_000.0


def server_context(
    authority: Authority, directory: Path, *, name_uri: str = "", validity_s: float = DAY_S
) -> ssl.SSLContext:
    """A gateway's side, from files as a gateway has them, as strict as Python 3.13."""
    issued = authority.issue(name_uri or authority.expected_uri(NODE), validity_s)
    own, trusted = directory / "gateway.pem", directory / "authority.pem"
    own.write_text(issued.certificate_pem + issued.private_key_pem)
    trusted.write_text(authority.ca_certificate_pem(4e9))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(own)
    context.load_verify_locations(trusted)
    return context


Outcome = bytes | OSError


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[Outcome, Outcome]:
    """What client and server received, or why they did not.

    With TLS 1.3 a client learns that its certificate was refused when it reads.
    """
    near, far = socket.socketpair()
    served: list[Outcome] = []

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as stream:
                served.append(stream.recv(16))
                stream.sendall(b"pong")
        except OSError as error:
            served.append(error)
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    answer: Outcome
    try:
        with client.wrap_socket(near) as stream:
            assert stream.version() == "TLSv1.3"
            stream.sendall(b"ping")
            answer = stream.recv(16)
    except OSError as error:
        answer = error
    near.close()
    thread.join()
    return answer, served[0]


def is_refused(outcome: Outcome, why: str) -> bool:
    return isinstance(outcome, ssl.SSLError) and why in str(outcome)


def test_two_workers_with_one_secret_trust_each_other(tmp_path: Path) -> None:
    provision, transfer = Authority(SECRET, "f1"), Authority(SECRET, "f1")
    client = transfer.client_context()
    assert client.verify_flags & ssl.VERIFY_X509_STRICT
    assert client.minimum_version == ssl.TLSVersion.TLSv1_3
    answer, request = shake_hands(client, server_context(provision, tmp_path))
    assert (answer, request) == (b"pong", b"ping")


@pytest.mark.parametrize(
    ("secret", "fleet_key"),
    [
        pytest.param(FleetSecret(b"x" * 32), "f1", id="other secret"),
        pytest.param(SECRET, "f2", id="other fleet"),
    ],
)
def test_another_secret_or_fleet_is_refused(
    secret: FleetSecret, fleet_key: str, tmp_path: Path
) -> None:
    ours, theirs = Authority(SECRET, "f1"), Authority(secret, fleet_key)
    answer, _ = shake_hands(ours.client_context(), server_context(theirs, tmp_path))
    assert is_refused(answer, "CERTIFICATE_VERIFY_FAILED")
    trusting = ours.client_context()
    trusting.verify_mode = ssl.CERT_NONE
    _, request = shake_hands(trusting, server_context(theirs, tmp_path))
    assert is_refused(request, "CERTIFICATE_VERIFY_FAILED")


def test_a_client_without_certificate_is_refused(tmp_path: Path) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    _, request = shake_hands(bare, server_context(Authority(SECRET, "f1"), tmp_path))
    assert is_refused(request, "PEER_DID_NOT_RETURN_A_CERTIFICATE")


def test_an_expired_certificate_is_refused_at_both_ends(tmp_path: Path) -> None:
    now = Authority(SECRET, "f1")
    expired = server_context(now, tmp_path, validity_s=-60.0)
    answer, _ = shake_hands(now.client_context(), expired)
    assert is_refused(answer, "has expired")
    client = Authority(SECRET, "f1", wall_clock=lambda: NOW).client_context()
    client.verify_mode = ssl.CERT_NONE
    _, request = shake_hands(client, server_context(now, tmp_path))
    assert is_refused(request, "has expired")


@pytest.mark.parametrize("ahead_s", [600.0, 3500.0])
def test_a_clock_that_is_ahead_is_tolerated(ahead_s: float, tmp_path: Path) -> None:
    """Of the gateway, and of the caller, whose clock nobody looks after."""
    ahead = Authority(SECRET, "f1", wall_clock=lambda: time.time() + ahead_s)
    now = Authority(SECRET, "f1")
    assert shake_hands(now.client_context(), server_context(ahead, tmp_path)) == (b"pong", b"ping")
    assert shake_hands(ahead.client_context(), server_context(now, tmp_path)) == (b"pong", b"ping")


def test_the_keys_depend_on_secret_fleet_and_purpose_alone() -> None:
    one, same = Authority(SECRET, "f1"), Authority(SECRET, "f1")
    other_fleet = Authority(SECRET, "f2")
    assert one.hello_key("a", "b") == same.hello_key("b", "a")
    assert one.sealing_key("t1", "s1") == same.sealing_key("t1", "s1")
    keys = {
        one.hello_key("a", "b"),
        one.hello_key("a", "c"),
        one.hello_key("b", "c"),
        other_fleet.hello_key("a", "b"),
        one.sealing_key("t1", "s1"),
        one.sealing_key("t2", "s1"),
        one.sealing_key("t1", "s2"),
        other_fleet.sealing_key("t1", "s1"),
    }
    assert len(keys) == 8
    assert {len(key) for key in keys} == {32}


def test_names_agree_with_what_the_gateway_reads() -> None:
    authority = Authority(SECRET, "f1")
    assert authority.expected_uri(NODE) == "skyplane://f1/gateway/aws%3Aus-east-1%2F0"
    assert node_of_uri("f1", authority.expected_uri(NODE)) == NODE
    assert authority.orchestrator_uri == orchestrator_uri("f1") == "skyplane://f1/orchestrator"


def test_the_name_is_the_only_one_in_the_certificate() -> None:
    authority = Authority(SECRET, "f1")
    issued = authority.issue(authority.expected_uri(NODE), DAY_S)
    certificate = x509.load_pem_x509_certificate(issued.certificate_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [authority.expected_uri(NODE)]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    backdated_s = time.time() - certificate.not_valid_before_utc.timestamp()
    assert backdated_s >= 300


def test_every_certificate_has_its_own_key() -> None:
    authority = Authority(SECRET, "f1")
    uri = authority.expected_uri(NODE)
    first, second = authority.issue(uri, DAY_S), authority.issue(uri, DAY_S)
    assert first.private_key_pem != second.private_key_pem
    assert first.certificate_pem != second.certificate_pem


def test_no_secret_in_any_representation() -> None:
    authority = Authority(SECRET, "f1")
    issued: IssuedCertificate = authority.issue(authority.orchestrator_uri, DAY_S)
    shown = f"{SECRET!r} {authority!r} {issued!r} {SECRET} {issued} {vars(authority)!r}"
    assert "horse" not in shown
    assert "PRIVATE KEY" not in shown


def test_the_client_certificate_never_touches_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, path: str) -> None:
        paths.append(Path(path).readlink().as_posix())
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    before = len(os.listdir("/proc/self/fd"))
    Authority(SECRET, "f1").client_context()
    assert [path.startswith("/memfd:") for path in paths] == [True]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_python_without_files_in_memory_leaves_no_file_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delattr(os, "memfd_create")
    client = Authority(SECRET, "f1").client_context()
    assert not list(folder.iterdir())
    answer, request = shake_hands(client, server_context(Authority(SECRET, "f1"), tmp_path))
    assert (answer, request) == (b"pong", b"ping")


@pytest.mark.parametrize("text", ["", "short", "x" * 31])
def test_a_short_secret_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="at least 32") as caught:
        FleetSecret.from_text(text)
    assert "x" * 31 not in str(caught.value)


def test_blanks_around_a_secret_do_not_count() -> None:
    assert FleetSecret.from_text("\n " + "x" * 32 + "\n") == FleetSecret(b"x" * 32)


def test_the_secret_file_is_made_once_and_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    first = FleetSecret.from_file()
    place = tmp_path / "config" / "skyplane-orch" / "secret"
    assert place == default_secret_path()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in place.parent.iterdir()] == ["secret"]
    assert FleetSecret.from_file() == first
    assert len(first.value) == 64


def test_a_relative_configuration_directory_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_secret_path() == tmp_path / ".config" / "skyplane-orch" / "secret"


def test_two_first_uses_at_once_agree(tmp_path: Path) -> None:
    place = tmp_path / "secret"
    barrier, found = threading.Barrier(8), []

    def first_use() -> None:
        barrier.wait()
        found.append(FleetSecret.from_file(place).value)

    threads = [threading.Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_use_is_refused(mode: int, tmp_path: Path) -> None:
    place = tmp_path / "secret"
    place.write_text("x" * 40)
    place.chmod(mode)
    with pytest.raises(ConfigurationInvalid, match=f"chmod 600 {place}"):
        FleetSecret.from_file(place)


def test_an_unusable_secret_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="not a regular file"):
        FleetSecret.from_file(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigurationInvalid, match="cannot be read or created"):
        FleetSecret.from_file(blocked / "secret")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff" * 40)
    binary.chmod(0o600)
    with pytest.raises(ConfigurationInvalid, match="not text"):
        FleetSecret.from_file(binary)


def test_an_authority_cannot_be_sent_anywhere() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Authority(SECRET, "f1"))


def test_an_authority_needs_a_fleet() -> None:
    with pytest.raises(ConfigurationInvalid, match="fleet key"):
        Authority(SECRET, "")
