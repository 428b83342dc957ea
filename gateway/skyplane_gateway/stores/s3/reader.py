"""The body of one ranged GET."""

from __future__ import annotations

from functools import cached_property
from http.client import HTTPException, HTTPResponse
from typing import Any

from botocore.exceptions import IncompleteReadError
from botocore.response import StreamingBody

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.s3.body import direct_reader, release
from skyplane_gateway.stores.s3.errors import mapped


class S3Reader(RangeReader[StreamingBody]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    @cached_property
    def _direct(self) -> HTTPResponse | None:
        return direct_reader(self._source)

    def _fill(self, view: memoryview) -> int:
        if self._direct is None:
            return self._read(view)
        try:
            return self._direct.readinto(view)
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"{self._what}: the body broke off, {self._left} bytes before its end "
                f"({type(error).__name__}); read the rest again"
            ) from error

    # Any: botocore's stubs ask for a file, its code for a buffer.
    def _read(self, view: Any) -> int:
        with mapped(self._what):
            try:
                return int(self._source.readinto(view))
            except IncompleteReadError:
                return 0

    def close(self) -> None:
        if self._left == 0 and self._direct is not None:
            release(self._source)
        self._source.close()
