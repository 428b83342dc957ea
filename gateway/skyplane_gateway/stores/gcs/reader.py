"""The body of one ranged read."""

from __future__ import annotations

import requests

from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.gcs.errors import mapped


class GcsReader(RangeReader):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def __init__(
        self,
        response: requests.Response,
        length: int,
        what: str,
        attributes: ObjectAttributes,
        not_carried: tuple[str, ...],
    ) -> None:
        super().__init__(length, what, attributes, not_carried)
        self._response = response

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            return int(self._response.raw.readinto(view))

    def close(self) -> None:
        self._response.close()
