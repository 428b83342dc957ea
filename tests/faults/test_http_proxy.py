"""The proxy before a store: it changes nothing but what its rules say, and counts right."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO
from urllib.parse import urlsplit

import pytest
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule, Schedule

OBJECT = bytes(range(256)) * 4


class _Store(BaseHTTPRequestHandler):
    """Keeps nothing: answers GET with `OBJECT`, and with what it heard otherwise."""

    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, str, bytes]]

    def _write(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.heard.append((self.command, self.path, (asked or "").encode()))
        if asked is None:
            return self._write(200, OBJECT)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return self._write(206, OBJECT[int(first) : int(last) + 1])

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.command, self.path, body))
        self._write(200, b"done")

    do_POST = do_PUT

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture
def heard() -> list[tuple[str, str, bytes]]:
    """Method, path and body (of a GET: its Range) of what reached the store."""
    return []


@pytest.fixture
def store(heard: list[tuple[str, str, bytes]]) -> Iterator[str]:
    handler = type("Handler", (_Store,), {"heard": heard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(store: str) -> Iterator[FaultProxy]:
    with running(store) as started:
        yield started


def connect(proxy: FaultProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)


def ask(
    client: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes]:
    client.request(method, path, body)
    answer = client.getresponse()
    return answer.status, answer.read()


def test_without_rules_one_connection_serves_many_requests(proxy: FaultProxy) -> None:
    client = connect(proxy)
    client.connect()
    socket_at_first = client.sock
    for _ in range(3):
        assert ask(client, "GET", "/b/k") == (200, OBJECT)
    assert ask(client, "HEAD", "/b/k") == (200, b"")
    assert ask(client, "PUT", "/b/k", b"x" * 100_000)[0] == 200
    assert client.sock is socket_at_first


def test_bodies_are_counted_by_key(proxy: FaultProxy, heard: list[tuple[str, str, bytes]]) -> None:
    client = connect(proxy)
    ask(client, "PUT", "/b/a%20key?partNumber=1", b"12345")
    ask(client, "PUT", "/b/a%20key?partNumber=2", b"67")
    ask(client, "PUT", "/b/other", b"x" * 300_000)
    ask(client, "PUT", "/account/b/blocks?comp=block&blockid=MQ%3D%3D", b"123")
    ask(client, "PUT", "/account/b/blocks?comp=blocklist", b"<a list>")
    ask(client, "POST", "/upload/storage/v1/b/b/o?uploadType=multipart&name=a+b%2Fc", b"1234")
    ask(client, "POST", "/b/a%20key?uploads", b"")
    ask(client, "GET", "/b/other")
    assert [body for _, _, body in heard[:3]] == [b"12345", b"67", b"x" * 300_000]
    counted = {"b/a key": 7, "b/other": 300_000, "account/b/blocks": 3, "b/a b/c": 4}
    assert dict(proxy.log.put_bytes_by_key) == counted
    assert proxy.log.put_bytes == sum(counted.values())
    last = proxy.log.exchanges[-1]
    assert (last.method, last.status, last.reply_bytes) == ("GET", 200, len(OBJECT))


EXPECTING = (
    b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
    b"Connection: close\r\n\r\n"
)


def open_stream(proxy: FaultProxy) -> tuple[socket.socket, BinaryIO]:
    parts = urlsplit(proxy.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=10)
    return connection, connection.makefile("rb")


def test_a_client_that_waits_is_told_to_continue(
    proxy: FaultProxy, heard: list[tuple[str, str, bytes]]
) -> None:
    connection, file = open_stream(proxy)
    with connection:
        connection.sendall(EXPECTING)
        assert file.readline().startswith(b"HTTP/1.1 100")
        assert file.readline() == b"\r\n"
        assert heard == []
        connection.sendall(b"body")
        assert file.readline().startswith(b"HTTP/1.1 200")
    assert heard == [("PUT", "/b/k", b"body")]


def test_a_client_that_waits_is_refused_without_its_body(proxy: FaultProxy) -> None:
    proxy.schedule.add(Rule("answer", status=503))
    connection, file = open_stream(proxy)
    with connection:
        connection.sendall(EXPECTING)
        assert file.read().startswith(b"HTTP/1.1 503")
    assert proxy.log.put_bytes == 0


def test_an_answer_in_the_stores_place(
    proxy: FaultProxy, heard: list[tuple[str, str, bytes]]
) -> None:
    proxy.schedule.add(
        Rule(
            "answer", "PUT", nth=2, times=2, status=429, headers=(("Retry-After", "3"),), body=b"s"
        )
    )
    client = connect(proxy)
    statuses = [ask(client, "PUT", "/b/k", b"body")[0] for _ in range(4)]
    assert statuses == [200, 429, 429, 200]
    assert len(heard) == 2
    assert proxy.log.put_bytes == 16
    assert [each.store_status for each in proxy.log.exchanges] == [200, None, None, 200]


def test_an_answer_after_the_store_did_it(
    proxy: FaultProxy, heard: list[tuple[str, str, bytes]]
) -> None:
    proxy.schedule.add(Rule("answer", "PUT", status=500, forward=True, body=b"lost"))
    assert ask(connect(proxy), "PUT", "/b/k", b"body") == (500, b"lost")
    assert heard == [("PUT", "/b/k", b"body")]
    (seen,) = proxy.log.exchanges
    assert (seen.status, seen.store_status, seen.fault) == (500, 200, "answer")


@pytest.mark.parametrize("keep", [0, 1, 700])
def test_a_truncated_body_keeps_its_length(proxy: FaultProxy, keep: int) -> None:
    proxy.schedule.add(Rule("truncate", keep_bytes=keep))
    client = connect(proxy)
    client.request("GET", "/b/k")
    answer = client.getresponse()
    assert answer.getheader("Content-Length") == str(len(OBJECT))
    with pytest.raises(http.client.IncompleteRead) as caught:
        answer.read()
    assert caught.value.partial == OBJECT[:keep]


def test_the_whole_in_place_of_a_range(
    proxy: FaultProxy, heard: list[tuple[str, str, bytes]]
) -> None:
    proxy.schedule.add(Rule("whole", nth=2))
    client = connect(proxy)
    found = []
    for _ in range(2):
        client.request("GET", "/b/k", headers={"Range": "bytes=1-3"})
        answer = client.getresponse()
        found.append((answer.status, answer.read()))
    assert found == [(206, OBJECT[1:4]), (200, OBJECT)]
    assert [asked for _, _, asked in heard] == [b"bytes=1-3", b""]


def test_a_range_that_is_signed_is_only_called_the_whole(proxy: FaultProxy) -> None:
    proxy.schedule.add(Rule("whole"))
    client = connect(proxy)
    signed = "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;range;x-amz-date, Signature=c"
    client.request("GET", "/b/k", headers={"Range": "bytes=1-3", "Authorization": signed})
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, OBJECT[1:4])
    assert answer.getheader("Content-Range") is None


@pytest.mark.parametrize(
    ("action", "reached"), [("drop-request", 0), ("drop-reply", 1), ("reset", 1)]
)
def test_a_connection_that_ends_without_an_answer(
    proxy: FaultProxy, heard: list[tuple[str, str, bytes]], action: str, reached: int
) -> None:
    proxy.schedule.add(Rule(action))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)) as caught:
        ask(connect(proxy), "PUT", "/b/k", b"body")
    is_reset = not isinstance(caught.value, http.client.RemoteDisconnected)
    assert is_reset == (action == "reset")
    assert len(heard) == reached
    assert proxy.log.put_bytes == 4
    assert ask(connect(proxy), "PUT", "/b/k", b"body")[0] == 200


# ------------------------------------------------------------------ rules


def test_the_first_rule_that_is_due_is_followed() -> None:
    schedule = Schedule([Rule("reset", "PUT", nth=3), Rule("drop-reply", target=r"^/b/k", times=0)])
    found = [schedule.due("PUT", "/b/k") for _ in range(4)]
    assert [rule.action if rule else None for rule in found] == [
        "drop-reply",
        "drop-reply",
        "reset",
        "drop-reply",
    ]
    assert schedule.due("PUT", "/c") is None
    schedule.clear()
    assert schedule.due("PUT", "/b/k") is None


@pytest.mark.parametrize("drop", [False, True])
def test_what_is_held_goes_on_or_is_lost_when_it_is_released(
    store: str, heard: list[tuple[str, str, bytes]], drop: bool
) -> None:
    ended: list[int | str] = []

    def put(name: str) -> None:
        try:
            ended.append(ask(connect(held), "PUT", name, b"body")[0])
        except (ConnectionError, http.client.HTTPException) as error:
            ended.append(type(error).__name__)

    with running(store, [Rule("hold", method="PUT", nth=2, times=0)]) as held:
        put("/b/one")
        assert ended == [200]
        thread = threading.Thread(target=put, args=("/b/two",))
        thread.start()
        while len(held.log.exchanges) < 2:
            thread.join(0.01)
        assert [path for _, path, _ in heard] == ["/b/one"]
        held.release(drop=drop)
        thread.join()
        put("/b/three")
    assert [path for _, path, _ in heard] == ["/b/one", *["/b/two"] * (not drop), "/b/three"]
    assert [ended[0], ended[2]] == [200, 200]
    assert (ended[1] == 200) == (not drop)
