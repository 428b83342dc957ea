"""The body of one ranged read of a file."""

from __future__ import annotations

import os

from skyplane_gateway.common.errors import PreconditionFailed, StoreError
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.local.errors import mapped
from skyplane_gateway.stores.local.paths import etag_of, info_of


class LocalReader(RangeReader[int]):
    """See `Reader`. Checks at the end that the file did not change during the read."""

    def __init__(
        self,
        file: int,
        offset: int,
        length: int,
        what: str,
        attributes: ObjectAttributes | None = None,
    ) -> None:
        super().__init__(file, length, what, attributes)
        self._offset = offset
        self._etag = etag_of(os.fstat(file))

    def require(self, key: str, if_match: str | None) -> None:
        """Check that the open file is the pinned version and holds the range."""
        if if_match is not None and if_match != self._etag:
            raise self._changed()
        size = info_of(key, os.fstat(self._source)).size_bytes
        if self._offset < 0 or self._left < 0 or self._offset + self._left > size:
            raise StoreError(
                f"{self._what}: bytes {self._offset}+{self._left} lie outside its {size} bytes",
                is_permanent=True,
            )

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            count = os.preadv(self._source, [view], self._offset)
        self._offset += count
        if count in (0, self._left) and etag_of(os.fstat(self._source)) != self._etag:
            raise self._changed()
        return count

    def close(self) -> None:
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def _changed(self) -> PreconditionFailed:
        return PreconditionFailed(f"{self._what}: the file was changed; list it again")
