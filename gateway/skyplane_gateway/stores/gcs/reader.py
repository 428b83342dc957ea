"""The body of one ranged read."""

from __future__ import annotations

import requests

from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.gcs.errors import mapped


class GcsReader(RangeReader[requests.Response]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            return int(self._source.raw.readinto(view))

    def close(self) -> None:
        self._source.close()
