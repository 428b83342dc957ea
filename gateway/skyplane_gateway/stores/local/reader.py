"""The body of one ranged read of a file."""

from __future__ import annotations

import os

from skyplane_gateway.errors import PreconditionFailed, StoreError, StoreUnavailable
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader
from skyplane_gateway.stores.local.errors import mapped
from skyplane_gateway.stores.local.paths import etag_of, info_of


class LocalReader(ClosingReader):
    """See `Reader`. Checks at the end that the file did not change during the read."""

    def __init__(
        self,
        file: int,
        offset: int,
        length: int,
        what: str,
        attributes: ObjectAttributes | None = None,
    ) -> None:
        self.attributes = attributes
        self.not_carried: tuple[str, ...] = ()
        self._file = file
        self._offset = offset
        self._left = length
        self._what = what
        self._etag = etag_of(os.fstat(file))

    def require(self, key: str, if_match: str | None) -> None:
        """Check that the open file is the pinned version and holds the range."""
        if if_match is not None and if_match != self._etag:
            raise self._changed()
        size = info_of(key, os.fstat(self._file)).size_bytes
        if self._offset < 0 or self._left < 0 or self._offset + self._left > size:
            raise StoreError(
                f"{self._what}: bytes {self._offset}+{self._left} lie outside its {size} bytes",
                is_permanent=True,
            )

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0 or len(buffer) == 0:
            return 0
        with mapped(self._what):
            count = os.preadv(self._file, [buffer[: self._left]], self._offset)
        self._offset += count
        self._left -= count
        if self._left == 0 or count == 0:
            if etag_of(os.fstat(self._file)) != self._etag:
                raise self._changed()
            if count == 0:
                raise StoreUnavailable(f"{self._what}: the file ended {self._left} bytes early")
        return count

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _changed(self) -> PreconditionFailed:
        return PreconditionFailed(f"{self._what}: the file was changed; list it again")
