"""The body of one ranged GET, checked for its length."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.exceptions import IncompleteReadError

from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader
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
        self._left = length
        self._what = what

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0:
            return 0
        # Any: botocore's stubs ask for a file, its code for a buffer.
        view: Any = buffer[: self._left]
        with mapped(self._what):
            try:
                count = int(self._body.readinto(view))
            except IncompleteReadError as error:
                raise self._ended_early() from error
        if count == 0 and len(buffer) > 0:
            raise self._ended_early()
        self._left -= count
        return count

    def close(self) -> None:
        self._body.close()

    def _ended_early(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._what}: the body ended {self._left} bytes early; read the range again"
        )
