"""The body of one ranged read, checked for its length."""

from __future__ import annotations

import requests

from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader
from skyplane_gateway.stores.gcs.errors import mapped


class GcsReader(ClosingReader):
    """See `Reader`. Holds one connection of the pool until its end or `close`.

    Args:
        response: None for a range of no bytes.
    """

    def __init__(
        self,
        response: requests.Response | None,
        length: int,
        what: str,
        attributes: ObjectAttributes | None,
        not_carried: tuple[str, ...],
    ) -> None:
        self.attributes: ObjectAttributes | None = attributes
        self.not_carried = not_carried
        self._response = response
        self._left = length
        self._what = what

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0 or self._response is None:
            return 0
        with mapped(self._what):
            count = int(self._response.raw.readinto(buffer[: self._left]))
        if count == 0 and len(buffer) > 0:
            raise StoreUnavailable(
                f"{self._what}: the body ended {self._left} bytes early; read the range again"
            )
        self._left -= count
        return count

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
