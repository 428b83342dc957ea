"""Decides whether a write succeeded when its response was lost.

An attempt whose response is lost may have succeeded. The next attempt then fails on its own
precondition, or finds no upload. The object at the store is the one that was sent if its size
and its ETag or checksum agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from skyplane_gateway.common.objects import Body, PartInfo
from skyplane_gateway.stores.checksums import crc32c_of, crc32c_text


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Size, ETag and checksum of the object that was sent.

    Attributes:
        etags: possible ETags by S3's rules, without quotes; empty when unknown.
        checksums: possible values of `x-amz-checksum-crc32c`.
    """

    size_bytes: int
    etags: frozenset[str]
    checksums: frozenset[str]

    def fits(self, head: Mapping[str, Any]) -> bool:
        """Whether a HEAD answer (with checksums) shows that object."""
        if head["ContentLength"] != self.size_bytes:
            return False
        same_etag = str(head.get("ETag", "")).strip('"') in self.etags
        return same_etag or head.get("ChecksumCRC32C") in self.checksums


def of_body(data: Body) -> Fingerprint:
    """For one PUT. Its ETag is MD5 unless the bucket encrypts with KMS keys."""
    return Fingerprint(
        size_bytes=len(data),
        etags=frozenset({md5(data, usedforsecurity=False).hexdigest()}),
        checksums=frozenset({crc32c_text(crc32c_of(data))}),
    )


def of_parts(size_bytes: int, parts: Sequence[PartInfo], crc32c: int | None) -> Fingerprint:
    """For a completed upload. S3 derives ETag and composite checksum from the parts."""
    checksums = set()
    if crc32c is not None:
        checksums.add(crc32c_text(crc32c))
    known = [part.crc32c for part in parts if part.crc32c is not None]
    if known and len(known) == len(parts):
        joined = b"".join(value.to_bytes(4, "big") for value in known)
        checksums.add(f"{crc32c_text(crc32c_of(joined))}-{len(parts)}")
    return Fingerprint(size_bytes, _composite_etag(parts), frozenset(checksums))


def _composite_etag(parts: Sequence[PartInfo]) -> frozenset[str]:
    try:
        digests = [bytes.fromhex(part.etag.strip('"')) for part in parts]
    except ValueError:
        return frozenset()
    joined = md5(b"".join(digests), usedforsecurity=False).hexdigest()
    return frozenset({f"{joined}-{len(parts)}"})
