"""Writes and reads message bodies field by field, big-endian.

`Writer` and `Reader` check the same limits. A violation raises `LocalProtocolError` in the
writer and `RemoteProtocolError` in the reader.
"""

from __future__ import annotations

import struct
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


class Writer:
    """Appends fields to a buffer of at most `limit` bytes."""

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self._data = bytearray()

    def u8(self, value: int, name: str) -> None:
        self._number(_U8, value, name)

    def u16(self, value: int, name: str) -> None:
        self._number(_U16, value, name)

    def u32(self, value: int, name: str) -> None:
        self._number(_U32, value, name)

    def u64(self, value: int, name: str) -> None:
        self._number(_U64, value, name)

    def raw(self, value: bytes, size: int, name: str) -> None:
        """A field of fixed size."""
        if len(value) != size:
            raise LocalProtocolError(
                f"{self._what}: {name} has {len(value)} bytes, it must have {size}"
            )
        self._data += value

    def text(self, value: str, limit: int, name: str) -> None:
        """UTF-8 after its length in bytes (u16)."""
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"{self._what}: {name} is not UTF-8 text") from error
        if len(encoded) > limit:
            raise LocalProtocolError(
                f"{self._what}: {name} has {len(encoded)} bytes, the limit is {limit}"
            )
        self._number(_U16, len(encoded), name)
        self._data += encoded

    @property
    def position(self) -> int:
        return len(self._data)

    def done(self) -> bytes:
        if len(self._data) > self._limit:
            raise LocalProtocolError(
                f"{self._what} has {len(self._data)} bytes, the limit is {self._limit}"
            )
        return bytes(self._data)

    def _number(self, kind: struct.Struct, value: int, name: str) -> None:
        try:
            self._data += kind.pack(value)
        except struct.error as error:
            raise LocalProtocolError(
                f"{self._what}: {name} = {value!r} does not fit {kind.size} bytes"
            ) from error


class Reader:
    """Reads fields from a received buffer, in order; never past its end."""

    def __init__(self, what: str, data: Buffer) -> None:
        self._what = what
        self._data = memoryview(data)
        self._position = 0

    def u8(self, name: str) -> int:
        return self._number(_U8, name)

    def u16(self, name: str) -> int:
        return self._number(_U16, name)

    def u32(self, name: str) -> int:
        return self._number(_U32, name)

    def u64(self, name: str) -> int:
        return self._number(_U64, name)

    def raw(self, size: int, name: str) -> bytes:
        return bytes(self._take(size, name))

    def text(self, limit: int, name: str) -> str:
        length = self._number(_U16, name)
        if length > limit:
            raise self.error(f"{name} has {length} bytes, the limit is {limit}")
        try:
            return str(self._take(length, name), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{name} is not UTF-8 text") from error

    @property
    def position(self) -> int:
        return self._position

    def end(self) -> None:
        """Check that no byte is left."""
        if self._position != len(self._data):
            raise self.error(f"{len(self._data) - self._position} bytes too many")

    def error(self, message: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self._what}: {message}")

    def _take(self, size: int, name: str) -> memoryview:
        end = self._position + size
        if end > len(self._data):
            raise self.error(f"ends inside {name}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _number(self, kind: struct.Struct, name: str) -> int:
        value: int = kind.unpack(self._take(kind.size, name))[0]
        return value
