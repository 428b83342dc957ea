"""A digest of the selected objects of a source. Two runs see by it whether anything has changed."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from skyplane_gateway.common.objects import ObjectInfo

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


class SourceDigest:
    """SHA-256 over key, size and ETag of each object, in the order of the listing.

    Needs constant memory. An object that is written again has a new digest, unless its store
    gives it the same ETag.
    """

    __slots__ = ("_hash",)

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, row: ObjectInfo) -> None:
        """The next row of the listing."""
        # JSON of ASCII characters: no key can be taken for two.
        line = _ENCODER.encode((row.key, row.size_bytes, row.etag))
        self._hash.update(line.encode() + b"\n")

    @property
    def text(self) -> str:
        """64 hex characters."""
        return self._hash.hexdigest()
