"""Bodies of requests and answers on their way through botocore, without copies.

A copy of a large body costs more than the system calls that send it. botocore's signer copies
buffers but not files, and urllib3's `readinto` copies what it has read.
"""

from __future__ import annotations

import io
from functools import cached_property
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any

from botocore.exceptions import IncompleteReadError
from botocore.response import StreamingBody

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import Body
from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.body_blocks import Blocks
from skyplane_gateway.stores.s3.error_mapping import mapped

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest


class SentBody(io.RawIOBase):
    """A buffer that botocore takes for a file."""

    def __init__(self, data: Body) -> None:
        self._view = memoryview(data).cast("B")
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._view[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = max(0, min(base + offset, len(self._view)))
        return self._at

    def tell(self) -> int:
        return self._at

    def blocks(self) -> Blocks:
        """The body from its beginning, in blocks."""
        return _Blocks(self._view)


class _Blocks(Blocks):
    """As urllib3 sends it; it would read a file in blocks of 16 KiB."""

    def seek(self, position: int) -> None:
        """Called by botocore before it sends the body again; each iteration starts at 0."""


def send_in_blocks(request: AWSPreparedRequest, **_: Any) -> None:
    """Replace the body after signing; its length is in the headers already."""
    body: Any = request.body  # Any: the stubs know no iterables.
    if isinstance(body, SentBody):
        blocks: Any = body.blocks()
        request.body = blocks


class S3Reader(RangeReader[StreamingBody]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    @cached_property
    def _direct(self) -> HTTPResponse | None:
        """What fills a buffer from the socket; None where only botocore can read the answer.

        urllib3 has no public way. It does not decode these bodies.
        """
        found = getattr(self._raw, "_fp", None)
        return found if isinstance(found, HTTPResponse) and found.length is not None else None

    @property
    def _raw(self) -> Any:
        return getattr(self._source, "_raw_stream", None)

    def _fill(self, view: memoryview) -> int:
        if self._direct is None:
            return self._read(view)
        try:
            return self._direct.readinto(view)
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"{self._what}: the body broke off, {self._remaining} bytes before its end "
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
        if self._remaining == 0 and self._direct is not None:
            self._raw.release_conn()
        self._source.close()
