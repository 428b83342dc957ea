"""Writes and reads message bodies: handshakes as a struct and a text, sealed parts as JSON.

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

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def pack_json(what: str, document: Mapping[str, Any], limit: int) -> bytes:
    """A document of at most `limit` bytes."""
    try:
        data = _ENCODER.encode(document).encode()
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


def pack_fields(
    what: str, layout: struct.Struct, values: tuple[object, ...], text: str, limit: int
) -> bytes:
    """Fields of fixed size, then a text of at most `limit` bytes of UTF-8."""
    try:
        packed, encoded = layout.pack(*values), text.encode()
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"{what}: {error}") from error
    # struct pads and cuts byte strings in silence.
    if layout.unpack(packed) != values or len(encoded) > limit:
        raise LocalProtocolError(
            f"{what}: bytes of another length than their field has, or a text of {len(encoded)} "
            f"bytes; its limit is {limit}"
        )
    return packed + encoded


def unpack_fields(
    what: str, layout: struct.Struct, data: Buffer, limit: int
) -> tuple[tuple[Any, ...], str]:
    """The fields at the beginning of `data`, and the text that is all the rest."""
    if not layout.size <= len(data) <= layout.size + limit:
        raise RemoteProtocolError(
            f"{what}: a body of {len(data)} bytes; it has {layout.size} to {layout.size + limit}"
        )
    try:
        return layout.unpack_from(data), str(data[layout.size :], "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"{what}: its text is not UTF-8") from error
