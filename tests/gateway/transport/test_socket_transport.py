"""The transport of data connections, over pairs of sockets."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from hypothesis import given, settings, strategies as st
from tests.gateway.transport.lab import until

from skyplane_gateway.transport.socket_transport import SocketTransport, adopted


class Recorder(asyncio.BufferedProtocol):
    """Records what a transport tells it."""

    def __init__(self, room: int = 4096) -> None:
        self.room = memoryview(bytearray(room))
        self.received = bytearray()
        self.told: list[str] = []
        self.lost: list[Exception | None] = []
        self.failure: Exception | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.room[:nbytes]
        if self.failure is not None:
            raise self.failure

    def eof_received(self) -> bool:
        self.told.append("eof")
        return False

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Pair:
    """A transport, and the socket of its peer."""

    def __init__(self) -> None:
        here, self.peer = socket.socketpair()
        here.setblocking(False)
        self.peer.setblocking(False)
        for end in (here, self.peer):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.protocol = Recorder()
        self.transport = SocketTransport(here, self.protocol)
        self.taken = bytearray()

    async def take(self, count: int) -> None:
        """Read so many bytes at the peer."""
        loop = asyncio.get_running_loop()
        while count:
            piece = await loop.sock_recv(self.peer, min(count, 3000))
            assert piece
            self.taken += piece
            count -= len(piece)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    try:
        yield made
    finally:
        made.transport.abort()
        made.peer.close()
        await asyncio.sleep(0)
    assert len(made.protocol.lost) == 1


BODY = random.Random(7).randbytes(300_000)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 40_000), max_size=90), max_size=8))
def test_bytes_come_in_order_however_they_are_cut(writes: list[list[int]]) -> None:
    async def run() -> None:
        async with pair() as here:
            start, data = 0, memoryview(BODY * 3)
            for lengths in writes:
                buffers = []
                for length in lengths:
                    buffers.append(data[start : start + length])
                    start = min(start + length, len(data))
                here.transport.writelines(buffers)
            await here.take(start)
            assert here.taken == data[:start]
            assert here.transport.get_write_buffer_size() == 0

    asyncio.run(run())


async def test_it_says_once_when_much_waits_and_once_when_it_has_left() -> None:
    async with pair() as here:
        here.transport.set_write_buffer_limits(high=50_000, low=20_000)
        here.transport.write(BODY)
        here.transport.write(BODY)
        assert here.protocol.told == ["pause"]
        await here.take(2 * len(BODY))
        assert here.protocol.told == ["pause", "resume"]


async def test_what_is_queued_leaves_before_a_half_close_and_the_answer_still_arrives() -> None:
    async with pair() as here:
        here.transport.write(BODY)
        here.transport.write_eof()
        here.transport.write(b"too late")
        await here.take(len(BODY))
        assert here.taken == BODY
        assert await asyncio.get_running_loop().sock_recv(here.peer, 10) == b""
        here.peer.send(b"answer")
        here.peer.close()
        await until(lambda: here.protocol.lost)
        assert here.protocol.received == b"answer"
        assert here.protocol.told[-1] == "eof"


async def test_what_is_queued_leaves_before_the_end() -> None:
    async with pair() as here:
        here.transport.write(BODY)
        here.transport.close()
        here.transport.write(b"too late")
        await here.take(len(BODY))
        await until(lambda: here.protocol.lost)
        assert here.taken == BODY
        assert here.protocol.lost == [None]


async def test_a_peer_that_goes_while_bytes_wait_for_it_is_told_as_an_error() -> None:
    async with pair() as here:
        here.transport.write(BODY)
        here.transport.write_eof()
        here.peer.close()
        await until(lambda: here.protocol.lost)
        assert here.transport.get_write_buffer_size() == 0


async def test_a_half_close_of_a_connection_that_was_reset_ends_it() -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
    async with pair() as here:

        class Reset:
            def shutdown(self, how: int) -> None:
                raise OSError(errno.ENOTCONN, "not connected")

            def __getattr__(self, name: str) -> object:
                return getattr(own, name)

        own = here.transport._socket
        here.transport.write(BODY)
        here.transport.write_eof()
        here.transport._socket = cast(socket.socket, Reset())
        await here.take(len(BODY))
        await until(lambda: here.protocol.lost)
    assert problems == []


async def test_nothing_arrives_while_reading_is_paused() -> None:
    async with pair() as here:
        here.transport.pause_reading()
        here.peer.send(b"one")
        for _ in range(3):
            await asyncio.sleep(0)
        assert here.protocol.received == b""
        here.transport.resume_reading()
        await until(lambda: here.protocol.received)


async def test_a_protocol_that_fails_ends_its_connection() -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
    async with pair() as here:
        here.protocol.failure = ValueError("a mistake")
        here.peer.send(b"one")
        await until(lambda: here.protocol.lost)
        assert here.protocol.lost == [here.protocol.failure]
    assert len(problems) == 1


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_connection_lives_on_also_where_no_file_descriptor_is_left(
    is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Adopting(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = adopted(transport, self)

    def no_more(_: socket.socket) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    if is_full:
        monkeypatch.setattr(socket.socket, "dup", no_more)
    loop = asyncio.get_running_loop()
    here, peer = socket.socketpair()
    with peer:
        _, protocol = await loop.create_connection(Adopting, sock=here)
        assert isinstance(protocol.transport, SocketTransport) != is_full
        peer.send(b"one")
        await until(lambda: protocol.received)
        protocol.transport.write(b"two")
        await asyncio.sleep(0)
        assert peer.recv(10) == b"two"
        protocol.transport.abort()
        await until(lambda: protocol.lost)
