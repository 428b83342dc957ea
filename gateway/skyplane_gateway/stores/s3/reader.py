"""The body of one ranged GET, checked for its length."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.exceptions import IncompleteReadError

from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader
from skyplane_gateway.stores.s3.body import direct_reader, release
from skyplane_gateway.stores.s3.errors import mapped

if TYPE_CHECKING:
    from botocore.response import StreamingBody


class S3Reader(ClosingReader):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def __init__(
        self,
        body: StreamingBody | BytesIO,
        length: int,
        what: str,
        attributes: ObjectAttributes,
        not_carried: tuple[str, ...] = (),
    ) -> None:
        self.attributes: ObjectAttributes | None = attributes
        self.not_carried = not_carried
        self._body = body
        self._direct = direct_reader(body)
        self._left = length
        self._what = what

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0:
            return 0
        # Any: botocore's stubs ask for a file, its code for a buffer.
        view: Any = buffer[: self._left]
        count = self._fill(self._direct, view) if self._direct is not None else self._read(view)
        if count == 0 and len(buffer) > 0:
            raise self._ended_early()
        self._left -= count
        return count

    def _fill(self, direct: HTTPResponse, view: memoryview) -> int:
        try:
            return direct.readinto(view)
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"{self._what}: the body broke off, {self._left} bytes before its end "
                f"({type(error).__name__}); read the rest again"
            ) from error

    def _read(self, view: Any) -> int:
        with mapped(self._what):
            try:
                return int(self._body.readinto(view))
            except IncompleteReadError as error:
                raise self._ended_early() from error

    def close(self) -> None:
        if self._left == 0 and self._direct is not None:
            release(self._body)
        self._body.close()

    def _ended_early(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._what}: the body ended {self._left} bytes early; read the range again"
        )
