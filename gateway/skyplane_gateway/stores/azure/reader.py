"""The body of one ranged GET."""

from __future__ import annotations

from typing import Final

from urllib3 import BaseHTTPResponse

from skyplane_gateway.stores.azure.errors import mapped
from skyplane_gateway.stores.base import RangeReader

#: A read returns at most so much, since urllib3 makes a new buffer for it.
_STEP_BYTES: Final = 1 << 20


class AzureReader(RangeReader[BaseHTTPResponse]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def readinto(self, buffer: memoryview) -> int:
        count = super().readinto(buffer)
        if self._left == 0:
            self.close()
        return count

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            data = self._source.read(min(len(view), _STEP_BYTES), decode_content=False)
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """A connection whose body was read to its end is used again."""
        if self._left:
            self._source.close()
        self._source.release_conn()
