"""The control port with many connections that prove nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control import listener as listener_module
from skyplane_gateway.control.listener import Listener, bound
from skyplane_gateway.control.tls import server_context
from skyplane_orchestration.security.authority import Authority, FleetSecret

HOST = "127.0.0.1"
LIMIT = 4
AUTHORITY = Authority(FleetSecret(b"the secret of the tests of the listener"), "ab" * 16)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"welcome")


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    config = GatewayConfig("a/0", "ab" * 16, HOST, HOST, str(tmp_path))
    issued = AUTHORITY.issue(AUTHORITY.expected_uri("a/0"), 3600.0)
    config.certificate_path.write_text(issued.certificate_pem + issued.private_key_pem)
    config.authority_path.write_text(AUTHORITY.ca_certificate_pem(2**31))
    return server_context(config)


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[Listener]:
    listener = Listener(bound(HOST, 0), context, Greeter, LIMIT)
    try:
        yield listener
    finally:
        await listener.close()


async def call(listener: Listener, say: bytes = b"") -> Streams:
    streams = await asyncio.open_connection(HOST, listener.port)
    streams[1].write(say)
    return streams


async def connected(listener: Listener) -> Streams:
    return await asyncio.open_connection(HOST, listener.port, ssl=AUTHORITY.client_context())


async def is_welcome(listener: Listener) -> bool:
    reader, writer = await asyncio.open_connection(
        HOST, listener.port, ssl=AUTHORITY.client_context()
    )
    try:
        return await reader.readexactly(7) == b"welcome"
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("say", [b"", b"\x16"])
async def test_connections_without_proof_are_limited_and_a_caller_of_the_fleet_gets_in(
    say: bytes, context: ssl.SSLContext
) -> None:
    async with listening(context) as listener:
        crowd = [await call(listener, say) for _ in range(5 * LIMIT)]
        for reader, _ in crowd[: -LIMIT - 1]:
            assert await ended(reader)
        assert len(listener._pending) <= 2 * LIMIT
        assert await is_welcome(listener)
        for _, writer in crowd:
            writer.close()


async def test_a_silent_caller_has_no_tls_yet(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS would cost 300 KiB."""
    async with listening(context) as listener:
        begun: list[object] = []

        async def count(*_: object, **__: object) -> None:
            begun.append(None)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "connect_accepted_socket", count)
        _, silent = await call(listener)
        _, speaking = await call(listener, b"\x16")
        while not begun:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
        assert len(begun) == 1
        assert len(listener._pending) == 1
        silent.close()
        speaking.close()


@pytest.mark.parametrize("say", [b"", b"\x16", b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_caller_without_proof_is_disconnected_at_the_deadline(
    say: bytes, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with listening(context) as listener:
        reader, writer = await call(listener, say)
        # A refusal of TLS may come before the end.
        await asyncio.wait_for(reader.read(), 60)
        writer.close()
        while listener._handshakes:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
        assert len(listener._pending) == 0


async def test_a_closed_listener_keeps_proven_connections_only(context: ssl.SSLContext) -> None:
    async with listening(context) as listener:
        inside = await asyncio.open_connection(HOST, listener.port, ssl=AUTHORITY.client_context())
        assert await inside[0].readexactly(7) == b"welcome"
        waiting = await call(listener)
        await asyncio.sleep(0)
        await listener.close()
        assert await ended(waiting[0])
        with pytest.raises(OSError):
            await call(listener)
        inside[1].write(b"still here")
        await inside[1].drain()
        inside[1].close()
        waiting[1].close()
