"""A proxy between two gateways that knows where a frame begins and ends.

It accepts in place of one gateway (give the other the proxy's address for it), dials that
gateway, and passes on what both say, message by message. A script decides what becomes of
each; it sees the outer header and nothing that is sealed:

    def script(message: Message) -> Action: ...

    async with frame_proxy(("127.0.0.1", port), script) as proxy:
        proxy.address

Frames are counted per direction of a connection, and time is the event loop's, so that a
script plays the same again.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from skyplane_gateway.protocol import FrameHeader, ProtocolError, ReceiptHeader
from skyplane_gateway.protocol.messages import (
    FRAME_HEADER_BYTES,
    PREFIX_BYTES,
    RECEIPT_HEADER_BYTES,
    MessageType,
    read_prefix,
    unpack_frame_header,
    unpack_receipt_header,
)

Address = tuple[str, int]


class Way(Enum):
    """Direction of a message, seen from the gateway that dialled."""

    THERE = "there"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it passes.

    Attributes:
        connection: number of the connection, from 0, in the order in which they came.
        number: of the message in its direction of that connection, from 0.
        header: the outer header of DATA and RECEIPT; None for others.
    """

    way: Way
    connection: int
    number: int
    kind: MessageType
    header: FrameHeader | ReceiptHeader | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Pass:
    """Hand it on as it is, so many times; 0 drops it."""

    copies: int = 1


@dataclass(frozen=True, slots=True)
class Delay:
    """Hand it on, and all behind it, later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Behind:
    """Hand it on after the next message of its direction: the two change places."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Forward that many bytes of a message, then the next message as if nothing was missing."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Flip:
    """Hand it on with a bit of the byte at `offset` (negative: from its end) changed."""

    offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection, both ways, without handing it on."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Hand on nothing more in this direction; its connection stays open and is not read."""


Action: TypeAlias = Pass | Delay | Behind | Truncate | Flip | Reset | Stall
Script: TypeAlias = Callable[[Message], Action]

PASS = Pass()
DROP = Pass(copies=0)


def pass_all(message: Message) -> Action:
    return PASS


def random_script(seed: int, actions: tuple[Action, ...], share: float) -> Script:
    """One of the actions for that share of DATA and RECEIPT, drawn from the seed."""
    rng = random.Random(seed)

    def script(message: Message) -> Action:
        if message.header is None or rng.random() >= share:
            return PASS
        return rng.choice(actions)

    return script


@dataclass(slots=True)
class FrameProxy:
    """A running proxy. `script` may be replaced while it runs; it holds for what comes then."""

    target: Address
    script: Script
    seen: list[Message] = field(default_factory=list)
    connections: int = 0
    _server: asyncio.Server | None = None
    _open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> Address:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.target[0], 0)

    def reset_all(self) -> int:
        """Break every connection; how many there were."""
        pairs = tuple(self._open)
        for pair in pairs:
            _break(pair)
        return len(pairs)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset_all()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()  # As if nobody listened.
            return
        number, self.connections = self.connections, self.connections + 1
        pair = (writer, far_writer)
        self._open.add(pair)
        for way, source, sink in (
            (Way.THERE, reader, far_writer),
            (Way.BACK, far_reader, writer),
        ):
            task = asyncio.create_task(self._pump(way, number, source, sink, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        way: Way,
        connection: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        """Carry one direction until it ends; the end is passed on as it came."""
        behind = b""
        number = 0
        try:
            while True:
                message = await _read(way, connection, number, reader)
                number += 1
                if message.header is not None:
                    self.seen.append(message)
                action = self.script(message)
                if isinstance(action, Reset):
                    _break(pair)
                    return
                if isinstance(action, Stall):
                    await asyncio.Event().wait()
                if isinstance(action, Delay):
                    await asyncio.sleep(action.seconds)
                if isinstance(action, Behind):
                    behind += message.data
                    continue
                writer.write(_changed(message.data, action) + behind)
                behind = b""
                await writer.drain()
        except asyncio.IncompleteReadError as ended:
            # What came is no whole message; it is passed on all the same, then the end.
            writer.write(behind + ended.partial)
            writer.close()
        except (ConnectionError, ProtocolError):
            _break(pair)
        finally:
            self._open.discard(pair)


async def _read(way: Way, connection: int, number: int, reader: asyncio.StreamReader) -> Message:
    """The next whole message.

    Raises:
        asyncio.IncompleteReadError: the stream has ended.
    """
    head = await reader.readexactly(PREFIX_BYTES)
    prefix = read_prefix(memoryview(head))
    data = head + await reader.readexactly(prefix.size_bytes - PREFIX_BYTES)
    header: FrameHeader | ReceiptHeader | None = None
    if prefix.kind is MessageType.DATA:
        header = unpack_frame_header(data[:FRAME_HEADER_BYTES])
    elif prefix.kind is MessageType.RECEIPT:
        header = unpack_receipt_header(data[:RECEIPT_HEADER_BYTES])
    return Message(way, connection, number, prefix.kind, header, data)


def _changed(data: bytes, action: Action) -> bytes:
    if isinstance(action, Pass):
        return data * action.copies
    if isinstance(action, Truncate):
        return data[: action.size_bytes]
    if isinstance(action, Flip):
        changed = bytearray(data)
        changed[action.offset] ^= 0x01
        return bytes(changed)
    return data


def _break(pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
    for writer in pair:
        handle = writer.get_extra_info("socket")
        if handle is not None:
            # Closed without a wait for what is unsent: the peer gets a reset, no end.
            with suppress(OSError):
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


@asynccontextmanager
async def frame_proxy(target: Address, script: Script = pass_all) -> AsyncIterator[FrameProxy]:
    """A proxy before the gateway that listens at `target`."""
    proxy = FrameProxy(target, script)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
