"""What a damaged machine on the way does to the bytes that pass it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from skyplane_gateway.protocol.messages import PREFIX_BYTES, MessageType, read_prefix

FrameKind = Literal["duplicate", "swap", "drop", "flip"]


def _flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


@dataclass(slots=True)
class Flip:
    """Changes one bit of the next bytes that pass, so far into them."""

    offset: int
    is_done: bool = False

    def __call__(self, data: bytes) -> bytes:
        if self.is_done:
            return data
        if self.offset >= len(data):
            self.offset -= len(data)
            return data
        self.is_done = True
        return _flipped(data, self.offset)


@dataclass(slots=True)
class CutOff:
    """Lets so many bytes pass, then breaks the connection."""

    left_bytes: int

    def __call__(self, data: bytes) -> bytes | None:
        if self.left_bytes <= 0:
            return None
        passed, self.left_bytes = data[: self.left_bytes], self.left_bytes - len(data)
        return passed


@dataclass(slots=True)
class FrameMeddler:
    """Duplicates, swaps, drops or damages one frame of data: number `nth` that passes.

    It starts between two messages, or else it would not know where one begins.
    """

    kind: FrameKind
    nth: int
    seen: int = 0
    _partial: bytearray = field(default_factory=bytearray)
    _held: bytes = b""

    def __call__(self, data: bytes) -> bytes:
        self._partial += data
        passed = bytearray()
        while len(self._partial) >= PREFIX_BYTES:
            prefix = read_prefix(memoryview(bytes(self._partial[:PREFIX_BYTES])))
            size = prefix.size_bytes
            if len(self._partial) < size:
                break
            message = bytes(self._partial[:size])
            del self._partial[:size]
            passed += self._pass(prefix.kind, message)
        return bytes(passed)

    def _pass(self, kind: MessageType, message: bytes) -> bytes:
        if kind is not MessageType.DATA:
            return self._release() + message
        self.seen += 1
        if self.seen != self.nth:
            return message + self._release()
        effects: dict[FrameKind, Callable[[bytes], bytes]] = {
            "duplicate": lambda whole: whole + whole,
            "swap": self._hold,
            "drop": lambda _: b"",
            "flip": lambda whole: _flipped(whole, len(whole) * 2 // 3),
        }
        return effects[self.kind](message)

    def _hold(self, message: bytes) -> bytes:
        self._held = message
        return b""

    def _release(self) -> bytes:
        held, self._held = self._held, b""
        return held
