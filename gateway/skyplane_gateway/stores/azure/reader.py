"""The body of one ranged GET, checked for its length."""

from __future__ import annotations

from typing import Final

from urllib3 import BaseHTTPResponse

from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.azure.errors import mapped
from skyplane_gateway.stores.base import ClosingReader

#: A read returns at most so much, since urllib3 makes a new buffer for it.
_STEP_BYTES: Final = 1 << 20


class AzureReader(ClosingReader):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def __init__(
        self,
        answer: BaseHTTPResponse,
        length: int,
        what: str,
        attributes: ObjectAttributes,
        not_carried: tuple[str, ...],
    ) -> None:
        self.attributes: ObjectAttributes | None = attributes
        self.not_carried = not_carried
        self._answer = answer
        self._left = length
        self._what = what

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0 or len(buffer) == 0:
            return 0
        with mapped(self._what):
            wanted = min(len(buffer), self._left, _STEP_BYTES)
            data = self._answer.read(wanted, decode_content=False)
        count = len(data)
        if count == 0:
            raise StoreUnavailable(
                f"{self._what}: the body ended {self._left} bytes early; read the range again"
            )
        buffer[:count] = data
        self._left -= count
        if self._left == 0:
            self.close()
        return count

    def close(self) -> None:
        """A connection whose body was read to its end is used again."""
        if self._left:
            self._answer.close()
        self._answer.release_conn()
