"""The control client with servers that behave unexpectedly."""

from __future__ import annotations

import json
import math
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.connect_proxy import connect_proxy
from tests.ports import free_port

from skyplane_gateway.common.dialing import dial
from skyplane_gateway.common.errors import (
    AddressTaken,
    GatewayError,
    GatewayUnreachable,
    NotAuthorised,
    SkyplaneError,
    StaleEpoch,
)
from skyplane_gateway.control import connection_pool
from skyplane_gateway.control.client import ControlClient, verb_timeout_s
from skyplane_orchestration.security.authority import Authority, FleetSecret

KEY = "ab" * 16
NODE = "aws:us-east-1/0"
OURS = Authority(FleetSecret(b"the secret of the client's tests!"), KEY)

OTHERS = Authority(FleetSecret(b"another secret, as long as needed"), KEY)

#: Handles one connection after the handshake.
Behaviour = Callable[[socket.socket], None]


def context_of(authority: Authority, directory: Path, node: str = NODE) -> ssl.SSLContext:
    issued = authority.issue(authority.expected_uri(node), 3600.0)
    own, trusted = directory / "own.pem", directory / "trusted.pem"
    own.write_text(issued.certificate_pem + issued.private_key_pem)
    trusted.write_text(authority.ca_certificate_pem(2**31))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own)
    context.load_verify_locations(trusted)
    return context


class Server:
    """Accepts connections one after another and counts them."""

    def __init__(self, context: ssl.SSLContext | None, *behaviours: Behaviour) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = context
        self._behaviours = list(behaviours)
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            behave = self._behaviours[min(self.connections, len(self._behaviours)) - 1]
            with self._handshake(raw) as connection:
                try:
                    behave(connection)
                except OSError:
                    continue

    def _handshake(self, raw: socket.socket) -> socket.socket:
        """The connection after its handshake, also after a failed one."""
        if self._context is None:
            return raw
        connection = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        try:
            connection.do_handshake()
        except OSError:
            # Closing with unread data would reset the connection and lose the alert.
            with suppress(OSError):
                while os.read(connection.fileno(), 65536):
                    pass
        return connection

    def close(self) -> None:
        # Closing alone does not wake the thread in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`serve(behaviour, ...)`: one behaviour per connection, in order."""
    running: list[Server] = []

    def start(*behaviours: Behaviour, tls: bool = True, authority: Authority = OURS) -> Server:
        context = context_of(authority, tmp_path) if tls else None
        server = Server(context, *behaviours)
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()


def client_for(port: int, timeout_s: float = 10.0, node: str = NODE) -> ControlClient:
    return ControlClient(
        "127.0.0.1", port, OURS.client_context(), OURS.expected_uri(node), timeout_s
    )


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise OSError("closed")
        data += piece
    return data


def answer(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def says(*answers: bytes) -> Behaviour:
    """Answers one request with each text, then closes the connection."""

    def behave(connection: socket.socket) -> None:
        for text in answers:
            read_request(connection)
            connection.sendall(text)

    return behave


OK = answer(b'{"state": "running"}')


def test_a_gateway_behind_a_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS goes through it: the proxy neither reads nor answers."""
    server = serve(says(OK, OK))
    uri = OURS.expected_uri(NODE)
    with connect_proxy(lambda *_: ("127.0.0.1", server.port)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url())
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with ControlClient("8.8.8.8", 7601, OURS.client_context(), uri, dial=dial) as client:
            assert client.status() == client.status() == {"state": "running"}
    assert proxy.asked == [("8.8.8.8", 7601)]


def test_nothing_listens() -> None:
    port = free_port()
    with client_for(port) as client, pytest.raises(GatewayUnreachable, match=str(port)) as caught:
        client.status()
    assert not caught.value.is_permanent


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_speaks_another_protocol_is_unreachable(serve: Serve, tls: bool) -> None:
    """Another program has the port of a gateway that ended; that is no lack of trust."""

    def another(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

    server = serve(another, tls=tls)
    with client_for(server.port) as client, pytest.raises(GatewayUnreachable):
        client.status()


@pytest.mark.parametrize("error", [NotAuthorised, AddressTaken])
@pytest.mark.parametrize(
    ("authority", "node", "message"),
    [(OTHERS, NODE, "do not trust"), (OURS, "aws:us-east-1/1", "answers as")],
)
def test_a_peer_that_is_not_the_expected_gateway_raises_the_chosen_error(
    serve: Serve, authority: Authority, node: str, message: str, error: type[GatewayError]
) -> None:
    port = serve(says(OK), authority=authority).port
    context, uri = OURS.client_context(), OURS.expected_uri(node)
    client = ControlClient("127.0.0.1", port, context, uri, wrong_peer_error=error)
    with client, pytest.raises(error, match=message) as caught:
        client.status()
    assert caught.value.is_permanent == (error is NotAuthorised)


def test_a_gateway_that_refuses_our_certificate(serve: Serve, tmp_path: Path) -> None:
    server = serve(says(OK))
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.load_verify_locations(cadata=OURS.ca_certificate_pem(2**31))
    client = ControlClient("127.0.0.1", server.port, stranger, OURS.expected_uri(NODE))
    with client, pytest.raises(NotAuthorised, match="do not trust"):
        client.status()


@pytest.mark.parametrize(
    "partial",
    [b"", b"HTTP/1.1 200", b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"state"'],
    ids=["before", "in the head", "in the body"],
)
def test_a_server_that_closes_during_its_response(serve: Serve, partial: bytes) -> None:
    server = serve(says(partial))
    with client_for(server.port) as client, pytest.raises(GatewayUnreachable):
        client.status()
    # Only a failure on an idle connection is retried.
    assert server.connections == 1


@pytest.mark.parametrize(
    "text",
    [
        answer(b"<html>It works!</html>"),
        answer(b"[1, 2]"),
        answer(b"\xff\xfe"),
        answer(b""),
        answer(b"not found", "404 Not Found"),
        answer(b"{}", "502 Bad Gateway"),
        answer(b'"text"', "500 Internal Server Error"),
    ],
)
def test_a_response_that_is_not_from_the_control_api(serve: Serve, text: bytes) -> None:
    server = serve(says(text))
    with client_for(server.port) as client, pytest.raises(SkyplaneError) as caught:
        client.status()
    assert type(caught.value) is GatewayError
    assert "is another service listening there?" in caught.value.message


def test_a_response_that_is_too_long(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MAX_RESPONSE_BYTES", 1000)
    long = answer(json.dumps({"text": "x" * 5000}).encode())
    server = serve(says(long, OK), says(OK))
    with client_for(server.port) as client:
        with pytest.raises(GatewayError):
            client.status()
        # Its rest is not part of the next response.
        assert client.status() == {"state": "running"}
    assert server.connections == 2


def test_a_call_that_times_out_is_not_retried(serve: Serve) -> None:
    release = threading.Event()

    def slow(connection: socket.socket) -> None:
        read_request(connection)
        release.wait(10)

    server = serve(slow)
    with client_for(server.port, timeout_s=0.2) as client:
        with pytest.raises(GatewayUnreachable, match="timed out"):
            client.status()
        release.set()
    assert server.connections == 1, "the gateway may have carried out the call"


def test_connections_are_used_again(serve: Serve) -> None:
    server = serve(says(*[OK] * 5))
    with client_for(server.port) as client:
        for _ in range(5):
            client.status()
    assert server.connections == 1


def test_a_connection_that_the_server_closes_is_not_kept(serve: Serve) -> None:
    server = serve(says(answer(b"{}", more="Connection: close\r\n")))
    with client_for(server.port) as client:
        client.status()
        client.status()
    assert server.connections == 2


def test_a_connection_that_was_idle_for_long_is_not_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall may have forgotten it: then nobody would answer."""
    server = serve(says(OK, OK), says(OK))
    with client_for(server.port) as client:
        client.status()
        monkeypatch.setattr(connection_pool, "_MAX_IDLE_S", -1.0)
        client.status()
    assert server.connections == 2


def test_idle_connections_are_left_where_one_of_them_gets_no_answer(serve: Serve) -> None:
    """A firewall that has forgotten one may have forgotten all of them."""

    class Forgotten:
        sock, used_at_s, is_closed = None, math.inf, False

        def request(self, *_: Any, **__: Any) -> None:
            raise TimeoutError("timed out")

        def close(self) -> None:
            self.is_closed = True

    server = serve(says(OK))
    idle = [Forgotten(), Forgotten(), Forgotten()]
    with client_for(server.port) as client:
        client._pool._idle += idle  # type: ignore[attr-defined]
        with pytest.raises(GatewayUnreachable, match="timed out"):
            client.status()
        assert all(one.is_closed for one in idle)
        assert client.status() == {"state": "running"}
    assert server.connections == 1


def test_a_dead_idle_connection_is_replaced_once(serve: Serve) -> None:
    server = serve(says(OK), says(OK))
    with client_for(server.port) as client:
        client.status()
        assert client.status() == {"state": "running"}
    assert server.connections == 2


def test_a_dead_idle_connection_is_retried_once_only(serve: Serve) -> None:
    server = serve(says(OK), says(b""), says(OK))
    with client_for(server.port) as client:
        client.status()
        with pytest.raises(GatewayUnreachable):
            client.status()
    assert server.connections == 2


def test_an_idle_connection_gets_the_timeout_of_the_next_call(serve: Serve) -> None:
    release = threading.Event()

    def then_slow(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(OK)
        read_request(connection)
        release.wait(10)

    server = serve(then_slow)
    with client_for(server.port, timeout_s=60.0) as client:
        client.status()
        client._timeout_s = 0.1
        with pytest.raises(GatewayUnreachable, match="timed out"):
            client.outcomes(KEY, 1, after=0, wait_s=0.1)
        release.set()


def test_an_error_keeps_its_class(serve: Serve) -> None:
    error = StaleEpoch("epoch 1 is over").to_dict()
    server = serve(says(answer(json.dumps(error).encode(), "422 Unprocessable"), OK))
    with client_for(server.port) as client:
        with pytest.raises(StaleEpoch, match="epoch 1 is over"):
            client.status()
        client.status()
    assert server.connections == 1, "the connection is kept after an error"


def test_a_client_that_is_closed_during_a_call_keeps_no_connection_open(serve: Serve) -> None:
    asked, ended = threading.Event(), threading.Event()
    client: Any = None

    def behave(connection: socket.socket) -> None:
        read_request(connection)
        asked.set()
        client.close()
        connection.sendall(OK)
        assert connection.recv(1) == b""
        ended.set()

    server = serve(behave)
    client = client_for(server.port)
    assert client.status() == {"state": "running"}
    assert asked.is_set()
    assert ended.wait(10)


def test_many_threads_at_once(serve: Serve) -> None:
    """The server takes one connection at a time, so the threads wait for each other."""
    server = serve(says(answer(b"{}", more="Connection: close\r\n")))
    errors: list[BaseException] = []
    with client_for(server.port) as client:

        def call() -> None:
            try:
                client.status()
            except SkyplaneError as error:
                errors.append(error)

        threads = [threading.Thread(target=call) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert errors == []
    assert server.connections == 12


@pytest.mark.parametrize(
    ("verb", "arguments", "timeout_s"),
    [
        ("list", {"prefix": ""}, 30.0),
        ("complete", {"size_bytes": 1}, 900.0),
        ("complete", {"size_bytes": 100 * 10**9}, 10_000.0),
        ("head", {}, 30.0),
        ("head", {"checksum": True, "size_bytes": 1}, 900.0),
        ("head", {"checksum": True, "size_bytes": 100 * 10**9}, 10_000.0),
    ],
)
def test_the_timeout_of_a_verb_that_reads_an_object_grows_with_its_size(
    verb: str, arguments: dict[str, Any], timeout_s: float
) -> None:
    assert verb_timeout_s(verb, arguments) == timeout_s
