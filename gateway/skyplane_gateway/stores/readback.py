"""Computes checksums of stored objects by reading them; compares objects with writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores.base import ComparingReader, ObjectStore
from skyplane_gateway.stores.checksums import Stated

_STEP_BYTES: Final = 1 << 20


def read_crc32c(
    store: ObjectStore, info: ObjectInfo, size_bytes: int, *, is_compared: bool = False
) -> int | None:
    """CRC32C of that version of the object; None when it ends before `size_bytes`.

    Args:
        is_compared: with what its store states of it.

    Raises:
        PreconditionFailed: the object is no longer that version.
        ChecksumMismatch: its bytes are not those that the store states.
    """
    from skyplane_gateway.common.checksum import crc32c as checksum  # Loads the AWS library.

    found = 0

    def take(piece: memoryview) -> None:
        nonlocal found
        found = checksum(piece, found)

    return found if _read(store, info, size_bytes, take, is_compared) else None


def read_sha256(store: ObjectStore, info: ObjectInfo, size_bytes: int) -> bytes | None:
    """As `read_crc32c`, by a hash that no attacker can foretell: SHA-256, 32 bytes. Compared."""
    found = hashlib.sha256()
    return found.digest() if _read(store, info, size_bytes, found.update, True) else None


def _read(
    store: ObjectStore,
    info: ObjectInfo,
    size_bytes: int,
    take: Callable[[memoryview], None],
    is_compared: bool,
) -> bool:
    """Hand that version of the object over in pieces; returns whether it is complete."""
    buffer = memoryview(bytearray(min(size_bytes, _STEP_BYTES) or 1))
    left = size_bytes
    with store.read(info.key, offset=0, length=size_bytes, if_match=info.etag) as found:
        stated = Stated.crc32c(info.crc32c) or found.stated
        reader = ComparingReader(found, info.key, size_bytes, stated) if is_compared else found
        while left:
            count = reader.readinto(buffer[: min(left, len(buffer))])
            if count == 0:
                return False
            take(buffer[:count])
            left -= count
    return True


def object_crc32c(
    store: ObjectStore, key: str, *, trust_store: bool = True
) -> tuple[ObjectInfo, int]:
    """The object of that key and its CRC32C, as the store reports it or by reading it.

    Args:
        trust_store: False to read it even if the store's checksum can be trusted.

    Raises:
        PreconditionFailed: it changed between the calls.
        StoreUnavailable: its body ended early.
    """
    info = store.head(key)
    return info, _crc32c_of(store, info, trust_store)


def _crc32c_of(store: ObjectStore, info: ObjectInfo, trust_store: bool) -> int:
    if trust_store and store.capabilities.trusts_checksum and info.crc32c is not None:
        return info.crc32c
    found = read_crc32c(store, info, info.size_bytes)
    if found is None:
        raise StoreUnavailable(f"the body of {info.key!r} ended early; try again")
    return found


def find_written(
    store: ObjectStore,
    key: str,
    size_bytes: int,
    crc32c: int,
    attributes: ObjectAttributes | None = None,
    *,
    trust_store: bool = True,
) -> ObjectInfo | None:
    """The object of that key if it has the bytes and attributes of a write.

    Decides after a refused write whether an earlier attempt, of any process, wrote the object.
    None also where these credentials may write and not read.
    """
    try:
        info = store.head(key)
        if info.size_bytes != size_bytes or not has_attributes(info, attributes):
            return None
        # A file store cannot read a directory, whose object has no bytes.
        found = _crc32c_of(store, info, trust_store) if size_bytes else 0
    except (NotFound, PermissionDenied, PreconditionFailed):
        return None
    return info if found == crc32c else None


def has_attributes(info: ObjectInfo, wanted: ObjectAttributes | None) -> bool:
    """Whether an object has these attributes, as far as that is known.

    Some stores keep no attributes. Stores choose a content type for a write without one. Answers
    about an object do not have its tags, and its class is that of the bucket or of a rule. An
    earlier release wrote copies without a mark.
    """
    if info.attributes is None or wanted is None:
        return True
    there, wanted = marked(info.attributes, None), marked(wanted, None)
    wanted = replace(wanted, tags=there.tags, storage_class=there.storage_class)
    if wanted.content_type is None:
        there = replace(there, content_type=None)
    return there == wanted
