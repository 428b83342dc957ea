"""CRC32C, the checksum of the wire and of parts.

CRC-32C as in RFC 3720 appendix B.4 (check value of b"123456789": 0xE3069283).
"""

from __future__ import annotations

from collections.abc import Iterable

from awscrt import checksums

from skyplane_gateway.common.buffers import Buffer


def crc32c(data: Buffer, previous: int = 0) -> int:
    """Checksum of `data`; `previous` is the checksum of the bytes before it."""
    return int(checksums.crc32c(data, previous))


def combine(first: int, second: int, second_bytes: int) -> int:
    """Checksum of two adjacent blocks, from their checksums and the length of the second."""
    return int(checksums.combine_crc32c(first, second, second_bytes))


def combined(blocks: Iterable[tuple[int, int]]) -> int:
    """Checksum of adjacent blocks, each given by its checksum and its length."""
    whole = 0
    for checksum, size_bytes in blocks:
        whole = combine(whole, checksum, size_bytes)
    return whole
