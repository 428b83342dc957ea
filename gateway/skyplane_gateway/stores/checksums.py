"""CRC32C of bodies and files.

awscrt, a library of 12 MB, is imported with the first checksum: a listing needs none.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from pathlib import Path
from typing import Final

from skyplane_gateway.errors import ChecksumMismatch
from skyplane_gateway.objects import Body

_STEP_BYTES: Final = 1 << 20


def crc32c_of(data: Body) -> int:
    """CRC32C (Castagnoli, RFC 3720 appendix B.4) of `data`."""
    from skyplane_gateway.checksum import crc32c

    return crc32c(data)


def crc32c_of_file(path: Path) -> int:
    """CRC32C of a whole file. Raises OSError."""
    from skyplane_gateway.checksum import crc32c

    found, buffer = 0, memoryview(bytearray(_STEP_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found = crc32c(buffer[:count], found)
    return found


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


def verify(what: str, data: Body, crc32c: int) -> None:
    """Raise ChecksumMismatch unless `data` has the checksum it came with."""
    found = crc32c_of(data)
    if found != crc32c:
        raise ChecksumMismatch(
            f"{what} has CRC32C {found:08x} but was sent as {crc32c:08x}; it must be read again"
        )
