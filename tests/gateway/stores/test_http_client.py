"""Requests over asyncio: one answer for each, or `Unsettled`; connections are used again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from skyplane_gateway.stores.async_requests import MAX_SMALL_BYTES, TlsAndProxy, Unsettled
from skyplane_gateway.stores.http_client import HttpResponse, close_connections, send

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: \xe9\r\n\r\nhi"


@dataclass
class Server:
    """Answers each request with the next of `answers`, and closes when there is none."""

    answers: list[bytes]
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.heads.append(head)
                self.is_asked.set()
                self.bodies.append(await reader.readexactly(int(length or 0)))
                writer.write(self.answers.pop(0))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has closed.
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, by: type[Server] = Server) -> AsyncIterator[Server]:
    server = by([*answers])
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        close_connections()
        listening.close()


def get(
    server: Server, method: str = "GET", body: bytes = b"", **headers: str
) -> Awaitable[HttpResponse]:
    named = {"Host": "here", **headers}
    return send(method, f"{server.url}/a%20b", named, body, expected=200)


async def test_a_request_and_its_answer() -> None:
    async with serving(OK) as server:
        answer = await get(server, "PUT", b"data", If_Match="x")
        assert (answer.status, answer.body) == (200, b"hi")
        assert answer.headers["x-name"] == "é"
        assert ("X-Name", "é") in answer.pairs
    assert server.heads[0].startswith(b"PUT /a%20b HTTP/1.1\r\nHost: here\r\nIf_Match: x\r\n")
    assert server.bodies == [b"data"]


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * (MAX_SMALL_BYTES // 256)
    async with serving(OK) as server:
        await get(server, "PUT", body)
    assert server.bodies == [body]


async def test_one_connection_serves_requests_in_turn() -> None:
    async with serving(OK, OK, OK) as server:
        for _ in range(3):
            assert (await get(server)).body == b"hi"
    assert server.connections == 1


async def test_requests_at_once_have_connections_of_their_own() -> None:
    async with serving(OK, OK) as server:
        answers = await asyncio.gather(get(server), get(server))
        assert [answer.body for answer in answers] == [b"hi", b"hi"]
    assert server.connections == 2


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + OK,
    ],
)
async def test_a_connection_that_ends_or_says_too_much_is_not_used_again(first: bytes) -> None:
    async with serving(first, OK) as server:
        assert (await get(server)).body == b"hi"
        assert (await get(server)).body == b"hi"
    assert server.connections == 2


async def test_the_answer_to_head_has_a_length_and_no_body() -> None:
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length for length in (7, 0)]
    async with serving(*answers) as server:
        for length in ("7", "0"):
            answer = await get(server, "HEAD")
            assert (answer.headers["content-length"], answer.body) == (length, b"")
    assert server.connections == 1


async def test_interim_answers_and_chunks() -> None:
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"
    )
    async with serving(answer) as server:
        found = await get(server)
        assert (found.status, found.body) == (200, b"hi!")
        assert "link" not in found.headers


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"],
        [b"SSH-2.0-nothing\r\n\r\n"],
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + bytes(3 * MAX_SMALL_BYTES)],
    ],
    ids=["closed", "short", "other protocol", "upgrade", "too long"],
)
async def test_anything_but_one_whole_answer_is_unsettled(answers: list[bytes]) -> None:
    async with serving(*answers) as server:
        with pytest.raises(Unsettled):
            await get(server)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"])
async def test_a_server_that_falls_silent(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyplane_gateway.stores.http_client._SILENCE_TIMEOUT_S", 0.05)
    async with serving(first, OK, OK) as server:
        with pytest.raises(Unsettled, match="no answer within"):
            await get(server)
        assert (await get(server)).body == b"hi"
    assert server.connections == 2


async def test_nobody_listens() -> None:
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    with pytest.raises(Unsettled, match=f"no connection to 127.0.0.1:{port}"):
        await send("GET", f"http://127.0.0.1:{port}/", {}, expected=200)


@pytest.mark.parametrize("text", ["a\r\nb: c", "a\nb", "a\rb", "é"])
async def test_a_header_that_would_be_two_is_not_sent(text: str) -> None:
    async with serving(OK) as server:
        with pytest.raises(Unsettled):
            await get(server, X=text)
    assert server.heads == []


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n", b"") as server:
        waiting = asyncio.ensure_future(get(server))
        await server.is_asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.answers[:] = [OK]
        assert (await get(server)).body == b"hi"
    assert server.connections == 2


async def test_a_proxy_gets_the_whole_url() -> None:
    async with serving(OK) as server:
        way = TlsAndProxy(None, server.url.replace("//", "//me:p%40ss@"))
        url = "http://store.invalid/a%20b"
        answer = await send("PUT", url, {}, b"data", expected=200, way=way)
        assert (answer.body, answer.headers["x-name"]) == (b"hi", "é")
    assert server.heads[0].startswith(
        b"PUT http://store.invalid/a%20b HTTP/1.1\r\nHost: store.invalid\r\n"
        b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n"
    )


def trusted(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of the server `store.invalid`, and of a client that trusts it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store.invalid")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("store.invalid")]), False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = folder / "pair.pem"
    file.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=file)


class Tunnelling(Server):
    """A proxy that is the server at the end of its own tunnel."""

    tls: ssl.SSLContext

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answers.pop(0))
        if self.answers:
            with suppress(OSError):  # The client may refuse the certificate.
                await writer.start_tls(self.tls)
                await super().serve(reader, writer)
        writer.close()


OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"
REFUSED = b"HTTP/1.1 407 Log in\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "answers", "heads"),
    [("store.invalid", [OPENED, OK], 2), ("store.invalid", [REFUSED], 1), ("o.x", [OPENED, OK], 1)],
    ids=["opened", "refused", "another server"],
)
async def test_a_request_over_tls_goes_through_a_tunnel(
    tmp_path: Path, host: str, answers: list[bytes], heads: int
) -> None:
    Tunnelling.tls, client_tls = trusted(tmp_path)
    async with serving(*answers, by=Tunnelling) as server:
        sent = send(
            "GET", f"https://{host}/k", {}, expected=200, way=TlsAndProxy(client_tls, server.url)
        )
        if heads == 2:
            assert (await sent).body == b"hi"
        else:
            with pytest.raises(Unsettled):
                await sent
    assert len(server.heads) == heads
    assert server.heads[0] == f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode()
