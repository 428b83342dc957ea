"""CRC32C of a body, and its spelling in S3's headers.

awscrt, a library of 12 MB, is imported when a checksum is computed: listing needs none.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
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


def verify(what: str, data: Body, crc32c: int) -> None:
    """Raise ChecksumMismatch unless `data` has the checksum it came with."""
    found = crc32c_of(data)
    if found != crc32c:
        raise ChecksumMismatch(
            f"{what} has CRC32C {found:08x} but was sent as {crc32c:08x}; it must be read again"
        )


def to_header(crc32c: int) -> str:
    """`x-amz-checksum-crc32c`: base64 of four big-endian bytes."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()


def from_header(text: str | None) -> int | None:
    """The checksum of a whole body; None for none and for a checksum of checksums (`...-N`)."""
    if text is None:
        return None
    try:
        raw = b64decode(text, validate=True)
    except Base64Error:
        return None
    return int.from_bytes(raw, "big") if len(raw) == 4 else None
