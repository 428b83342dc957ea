"""Writes and reads message bodies: handshakes field by field, big-endian, sealed parts as JSON.

Both sides check the same limits. A violation raises `LocalProtocolError` in the writer and
`RemoteProtocolError` in the reader.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.schema import decode
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")


def pack_json(what: str, document: Mapping[str, Any], limit: int) -> bytes:
    """A document of at most `limit` bytes."""
    try:
        data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{what}: a text is not UTF-8") from error
    if len(data) > limit:
        raise LocalProtocolError(f"{what} has {len(data)} bytes, the limit is {limit}")
    return data


def unpack_json(kind: type[T], what: str, data: Buffer, limit: int) -> T:
    """The dataclass `kind` from all of `data`."""
    if len(data) > limit:
        raise RemoteProtocolError(f"{what}: {len(data)} bytes, the limit is {limit}")
    try:
        return decode(kind, json.loads(str(data, "utf-8")), what)
    except (ValueError, RecursionError, ConfigurationInvalid) as error:
        raise RemoteProtocolError(f"{what}: {error}") from error


class FieldWriter:
    """Appends fields to a buffer of at most `limit` bytes."""

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self._data = bytearray()

    def u8(self, value: int, name: str) -> None:
        self._number(_U8, value, name)

    def u16(self, value: int, name: str) -> None:
        self._number(_U16, value, name)

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


class FieldReader:
    """Reads fields from a received buffer, in order; never past its end."""

    def __init__(self, what: str, data: Buffer) -> None:
        self._what = what
        self._data = memoryview(data)
        self._position = 0

    def u8(self, name: str) -> int:
        return self._number(_U8, name)

    def u16(self, name: str) -> int:
        return self._number(_U16, name)

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
