"""Checksums of bodies and files, and what stores state of them.

awscrt, a library of 12 MB, is imported with the first checksum: a listing needs none.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import md5
from typing import NamedTuple

from skyplane_gateway.common.errors import ChecksumMismatch
from skyplane_gateway.common.objects import Body


def crc32c_of(data: Body) -> int:
    """CRC32C (Castagnoli, RFC 3720 appendix B.4) of `data`."""
    from skyplane_gateway.common.checksum import crc32c

    return crc32c(data)


def hex_of(text: str | None, size_bytes: int) -> str | None:
    """A digest of so many bytes that a store states in base64, in hex; None for anything else,
    such as a checksum of checksums (`...-N`)."""
    try:
        raw = b64decode(text or "", validate=True)
    except Base64Error:
        return None
    return raw.hex() if len(raw) == size_bytes else None


def stated_crc32c(text: str | None) -> int | None:
    """The CRC32C in a store's answer: base64 of four big-endian bytes; None for anything else."""
    found = hex_of(text, 4)
    return None if found is None else int(found, 16)


def crc32c_text(value: int) -> str:
    """A CRC32C as stores take it: base64 of four big-endian bytes."""
    return b64encode(value.to_bytes(4, "big")).decode()


class Stated(NamedTuple):
    """What a store states of a whole body: CRC32C, CRC64NVME, CRC32 or MD5, and it in hex."""

    algorithm: str
    digest: str

    @classmethod
    def crc32c(cls, value: int | None) -> Stated | None:
        return None if value is None else cls("CRC32C", f"{value:08x}")

    @classmethod
    def md5(cls, digest: str | None) -> Stated | None:
        return None if digest is None else cls("MD5", digest)


def range_of_whole(length: int) -> str:
    """The `Content-Range` of an answer that is a whole object of so many bytes."""
    return f"bytes 0-{length - 1}/{length}"


class ChecksumComparison:
    """Compares the bytes of an object, piece by piece, with what its store states of them."""

    def __init__(self, key: str, stated: Stated | None) -> None:
        from awscrt import checksums

        self._key, self._stated, self._sum = key, stated, 0
        self._md5 = md5(usedforsecurity=False)
        name = "" if stated is None else stated.algorithm.lower()
        self._crc = getattr(checksums, name, None)

    @property
    def crc32c(self) -> int | None:
        """CRC32C of the bytes so far, where they are compared by it."""
        return None if self._stated is None or self._stated.algorithm != "CRC32C" else self._sum

    def take(self, piece: Body) -> None:
        """The next bytes."""
        if self._crc is not None:
            self._sum = self._crc(piece, self._sum)
        elif self._stated is not None:
            self._md5.update(piece)

    def finish(self) -> None:
        """Raise ChecksumMismatch unless these were the bytes that the store states."""
        if self._stated is None:
            return
        name, wanted = self._stated
        found = f"{self._sum:0{len(wanted)}x}" if self._crc is not None else self._md5.hexdigest()
        if found == wanted:
            return
        option = ", which the source's option content-md5=ignore ignores" if name == "MD5" else ""
        raise ChecksumMismatch(
            f"what was read of {self._key!r} has {name} {found}, but its store states {wanted}: "
            f"the bytes are damaged, or the stated {name} is wrong{option}; look at the object"
        )


def compare(key: str, body: Body, stated: Stated | None) -> None:
    """As a `ChecksumComparison`, of a body in one piece."""
    if stated is not None:
        comparison = ChecksumComparison(key, stated)
        comparison.take(body)
        comparison.finish()


def verify(what: str, data: Body, crc32c: int) -> None:
    """Raise ChecksumMismatch unless `data` has the checksum it came with."""
    require_sum(what, crc32c_of(data), crc32c)


def require_sum(what: str, found: int, crc32c: int) -> None:
    """As `verify`, of data whose checksum was found."""
    if found != crc32c:
        raise ChecksumMismatch(
            f"{what} has CRC32C {found:08x} but was sent as {crc32c:08x}; it must be read again"
        )
