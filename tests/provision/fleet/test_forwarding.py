"""A worker calls one port of an instance, and the real forwarder connects it with the others."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from tests.connect_proxy import connect_proxy
from tests.ports import free_port

from skyplane_gateway.common.dialing import dial, directly
from skyplane_orchestration.provision.fleet import forward, forwarding
from skyplane_orchestration.provision.fleet.forwarding import forwarding_script, worker_dial

HOST = "127.0.0.1"
TIMEOUT_S = 30.0


class Forwarder:
    """`forward.py` as a boot script runs it, for one port behind it.

    Attributes:
        port: that workers call.
        behind: listens at the port that they want.
    """

    def __init__(self, behind: socket.socket) -> None:
        self.behind = behind
        self.wanted = behind.getsockname()[1]
        self.port = free_port()
        words = [HOST, *map(str, (self.port, self.wanted, self.wanted))]
        command = [sys.executable, "-I", str(forward.__file__), *words]
        self.process = subprocess.Popen(command)
        while True:
            try:
                directly(HOST, self.port, TIMEOUT_S).close()
                return
            except ConnectionRefusedError:
                assert self.process.poll() is None

    def call(self, port: int | None = None) -> socket.socket:
        return worker_dial(self.port)(HOST, port or self.wanted, TIMEOUT_S)

    def says_nothing_to(self, sent: bytes) -> bool:
        """Whether it closes a connection after these bytes."""
        with closing(directly(HOST, self.port, TIMEOUT_S)) as stream:
            stream.sendall(sent)
            return stream.recv(1) == b""


@pytest.fixture
def forwarder() -> Iterator[Forwarder]:
    with socket.create_server((HOST, 0)) as behind:
        behind.settimeout(TIMEOUT_S)
        made = Forwarder(behind)
        try:
            yield made
        finally:
            made.process.kill()
            made.process.wait()


def read_to_end(stream: socket.socket) -> bytes:
    stream.settimeout(TIMEOUT_S)
    with stream.makefile("rb") as file:
        return file.read()


def test_bytes_go_both_ways_and_the_gateways_end_is_the_workers(forwarder: Forwarder) -> None:
    sent, answer = bytes(range(256)) * 4000, b"answer" * 100_000
    with closing(forwarder.call()) as worker:
        gateway, _ = forwarder.behind.accept()
        worker.sendall(sent)
        with gateway, gateway.makefile("rb") as file:
            assert file.read(len(sent)) == sent
            gateway.sendall(answer)
        assert read_to_end(worker) == answer


def test_the_workers_end_is_the_gateways(forwarder: Forwarder) -> None:
    worker = forwarder.call()
    gateway, _ = forwarder.behind.accept()
    worker.sendall(b"last words")
    worker.close()
    with gateway:
        assert read_to_end(gateway) == b"last words"


def test_a_gateway_that_does_not_listen_refuses_as_without_a_forwarder(
    forwarder: Forwarder,
) -> None:
    forwarder.behind.close()
    with pytest.raises(ConnectionRefusedError, match=f"port {forwarder.wanted} behind it"):
        forwarder.call()


def test_no_other_port_is_reached(forwarder: Forwarder) -> None:
    """Neither the data of a gateway, nor another service of the machine."""
    with socket.create_server((HOST, 0)) as other:
        other.setblocking(False)
        with pytest.raises(ConnectionRefusedError):
            forwarder.call(other.getsockname()[1])
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.parametrize(
    "sent",
    [b"\n", b"skyplane\n", b"skyplane x\n", b"GET / HTTP/1.1\r\n", b"\xff" * (1 << 18)],
    ids=["empty", "no port", "no number", "http", "no end"],
)
def test_strangers_are_hung_up_on_and_the_next_caller_is_served(
    sent: bytes, forwarder: Forwarder
) -> None:
    with suppress(ConnectionError):  # It has closed before it has read all.
        assert forwarder.says_nothing_to(sent)
    forwarder.call().close()
    forwarder.behind.accept()[0].close()


def test_a_machine_that_answers_otherwise_is_no_instance() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(TIMEOUT_S)

        def answer(host: str, _: int, timeout_s: float) -> socket.socket:
            stream = directly(host, port, timeout_s)
            other, _ = server.accept()
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            other.close()
            return stream

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forwarding, "dial", answer)
            with pytest.raises(ConnectionRefusedError, match="no instance of a fleet"):
                worker_dial(443)(HOST, 7601, TIMEOUT_S)


def test_a_proxy_sees_the_one_port_alone(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(lambda _, port: (HOST, forwarder.port) if port == 443 else None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url())
        worker_dial(443)("52.1.1.1", forwarder.wanted, TIMEOUT_S).close()
        assert proxy.asked == [("52.1.1.1", 443)]


def test_without_such_a_port_nothing_is_forwarded() -> None:
    assert worker_dial(7600) is dial
    assert forwarding_script(7600, 8) == ""


def test_a_script_forwards_to_enrolment_and_control_alone() -> None:
    script = forwarding_script(443, 4)
    assert "python3 - \"$address\" 443 7600 7604 <<'PYTHON' &\n" in script
