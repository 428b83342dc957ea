"""Connections through a real proxy, and without one."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator

import pytest
from tests.connect_proxy import connect_proxy

from skyplane_gateway.common.dialing import dial, proxy_for

#: Of the internet; no test connects with it.
FAR = "8.8.8.8"
SECRET = "u%40corp:p%2Fhush"


@pytest.fixture(autouse=True)
def no_proxy_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets, until the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    while data := peer.recv(4096):
                        peer.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()


def said_by(stream: socket.socket) -> bytes:
    with stream:
        stream.sendall(b"hello")
        stream.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: stream.recv(4096), b""))


def test_a_public_address_is_reached_through_the_proxy(
    echo: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(lambda *_: echo) as proxy:
        for name, credentials in (("HTTPS_PROXY", SECRET), ("ALL_PROXY", "")):
            monkeypatch.setenv(name, proxy.url(credentials))
            assert said_by(dial(FAR, 7600, 10.0)) == b"hello"
            monkeypatch.delenv(name)
        # As curl takes it too.
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
        assert said_by(dial("gateway.example", 443, 10.0)) == b"hello"
    assert proxy.asked == [(FAR, 7600), (FAR, 7600), ("gateway.example", 443)]
    wanted = b"Basic " + b64encode(b"u@corp:p/hush")
    assert [wanted in head for head in proxy.heads] == [True, False, False]


def test_a_proxy_of_another_kind_for_all_programs_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    assert proxy_for(FAR) is None


def test_what_needs_no_proxy_is_reached_directly(
    echo: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(lambda *_: None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url())
        assert said_by(dial(*echo, 10.0)) == b"hello"
        monkeypatch.setenv("NO_PROXY", "localhost")
        assert said_by(dial("localhost", echo[1], 10.0)) == b"hello"
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", f"connect to {FAR}:7600, .*403 Forbidden.*port 7600"),
        (b"HTTP/1.1 407 Who?\r\n\r\n", "407 Who.*HTTPS_PROXY needs its user and password"),
        (b"220 mail.example\r\n\r\n", "220 mail.example"),
        (b"HTTP/1.1 200 OK\r\n", "does not connect"),
        (b"x" * 20000 + b"\r\n\r\n", "does not connect"),
    ],
)
def test_a_proxy_that_refuses_is_named_without_its_password(
    answer: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(lambda *_: None, answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url(SECRET))
        with pytest.raises(ConnectionError, match=said) as caught:
            dial(FAR, 7600, 10.0)
        assert f"http://127.0.0.1:{proxy.port} " in str(caught.value)
    assert not any(part in str(caught.value) for part in ("corp", "hush"))


def test_a_proxy_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://{SECRET}@127.0.0.1:{port}")
        with pytest.raises(TimeoutError, match=f"http://127.0.0.1:{port} .* 0.2 s"):
            dial(FAR, 7600, 0.2)
    with pytest.raises(ConnectionError, match=f"http://127.0.0.1:{port} does not answer"):
        dial(FAR, 7600, 5.0)


@pytest.mark.parametrize(
    "address",
    [f"https://{SECRET}@p.example", f"socks5://{SECRET}@p.example:1080", "http://", "http://p:x"],
)
def test_a_proxy_of_another_kind_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ConnectionError, match="HTTPS_PROXY") as caught:
        dial(FAR, 7600, 1.0)
    assert not any(part in str(caught.value) for part in ("corp", "hush"))
