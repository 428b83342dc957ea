"""CRC32C: the one checksum of the wire, and the only use of awscrt in the protocol.

CRC-32C as in RFC 3720 appendix B.4 (check value of b"123456789": 0xE3069283).
"""

from __future__ import annotations

from awscrt import checksums

from skyplane_gateway.buffers import Buffer


def crc32c(data: Buffer, previous: int = 0) -> int:
    """Checksum of `data`, going on from the checksum of what came before it."""
    return int(checksums.crc32c(data, previous))


def combine(first: int, second: int, second_bytes: int) -> int:
    """Checksum of two blocks on end, from their own checksums and the second's length."""
    return int(checksums.combine_crc32c(first, second, second_bytes))
