"""The framing of HTTP/1.1 messages (RFC 9112), for a proxy that passes bodies on as they come."""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

#: Bounds a head, and what a slow reader lets pile up.
BUFFER_BYTES: Final = 1 << 18


class Malformed(Exception):
    """The peer does not speak HTTP/1.1, or stopped in the middle of a message."""


@dataclass(frozen=True, slots=True)
class Head:
    """A first line and its headers, in order and spelling as they came."""

    first: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str, default: str = "") -> str:
        for each, value in self.headers:
            if each.lower() == name.lower():
                return value
        return default

    def without(self, *names: str) -> Head:
        gone = {name.lower() for name in names}
        return Head(self.first, tuple(pair for pair in self.headers if pair[0].lower() not in gone))

    def plus(self, name: str, value: str) -> Head:
        return Head(self.first, (*self.without(name).headers, (name, value)))

    def encode(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @property
    def method(self) -> str:
        return self.first.split(" ")[0]

    @property
    def target(self) -> str:
        return self.first.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    @property
    def is_chunked(self) -> bool:
        return self.get("Transfer-Encoding").lower().endswith("chunked")

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        said = self.get("Connection").lower()
        return said == "close" or ("HTTP/1.0" in self.first and said != "keep-alive")


async def read_head(reader: StreamReader) -> Head | None:
    """The next head; None when the peer closed between messages.

    Raises:
        Malformed.
    """
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except IncompleteReadError as error:
        if not error.partial.strip():
            return None
        raise Malformed("the head ended early") from error
    except (ConnectionError, ValueError) as error:
        raise Malformed(str(error)) from error
    first, *lines = raw.decode("latin-1").strip("\r\n").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    head = Head(first, tuple((name.strip(), value.strip()) for name, _, value in pairs))
    if len(first.split(" ")) < 2:
        raise Malformed(f"not HTTP: {first!r}")
    return head


def request_body(head: Head, reader: StreamReader) -> AsyncGenerator[bytes, None]:
    """The body of a request, in its framing, piece by piece."""
    if head.is_chunked:
        return _chunked(reader)
    return _counted(reader, int(head.get("Content-Length", "0")))


def reply_body(method: str, head: Head, reader: StreamReader) -> AsyncGenerator[bytes, None]:
    """The body of an answer, in its framing, piece by piece."""
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return _counted(reader, 0)
    if head.is_chunked:
        return _chunked(reader)
    if head.get("Content-Length"):
        return _counted(reader, int(head.get("Content-Length")))
    return _to_the_end(reader)


async def _counted(reader: StreamReader, length: int) -> AsyncGenerator[bytes, None]:
    while length > 0:
        piece = await reader.read(min(length, BUFFER_BYTES))
        if not piece:
            raise Malformed(f"the body ended {length} bytes early")
        length -= len(piece)
        yield piece


async def _chunked(reader: StreamReader) -> AsyncGenerator[bytes, None]:
    """Chunks with their sizes, the last one and the trailers, as they came."""
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            yield line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            async for piece in _counted(reader, size + 2):
                yield piece
        while line != b"\r\n":
            line = await reader.readuntil(b"\r\n")
            yield line
    except (IncompleteReadError, ValueError) as error:
        raise Malformed("a chunk ended early") from error


def unchunked(raw: bytes) -> bytes:
    """What a whole chunked body carries."""
    pieces: list[bytes] = []
    while True:
        line, _, raw = raw.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(raw[:size])
        raw = raw[size + 2 :]


async def _to_the_end(reader: StreamReader) -> AsyncGenerator[bytes, None]:
    while piece := await reader.read(BUFFER_BYTES):
        yield piece
