"""The body of a ranged read that continues where it broke."""

from __future__ import annotations

from collections.abc import Callable

from skyplane_gateway.common.errors import StoreUnavailable, Throttled
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader, Reader
from skyplane_gateway.stores.wrappers.store_call import StoreCall


class RetryingReader(ClosingReader):
    """See `Reader`.

    Args:
        open_rest: takes a permit and opens the range after so many bytes; retries by itself.
        length: of the range, in bytes.
        release: gives the permit back, once the range is closed.
        can_resume: every attempt reads the same version.
    """

    def __init__(
        self,
        open_rest: Callable[[int], Reader],
        release: Callable[[], None],
        *,
        length: int,
        can_resume: bool,
        call: StoreCall,
    ) -> None:
        self._open_rest = open_rest
        self._length = length
        self._release = release
        self._can_resume = can_resume
        self._call = call
        self._done_bytes = 0
        self._reader = open_rest(0)
        # Later answers are of the rest only.
        self.stated = self._reader.stated
        self._has_permit = True

    @property
    def attributes(self) -> ObjectAttributes | None:
        return self._reader.attributes

    @property
    def not_carried(self) -> tuple[str, ...]:
        return self._reader.not_carried

    def readinto(self, buffer: memoryview) -> int:
        while True:
            try:
                count = self._reader.readinto(buffer)
                if count == 0 and len(buffer) > 0 and self._done_bytes < self._length:
                    raise StoreUnavailable("the body ended before the range did; read it again")
            except (Throttled, StoreUnavailable) as error:
                self.close()
                if not self._can_resume:
                    raise
                self._call.wait_after(error)
                self._reader = self._open_rest(self._done_bytes)
                self._has_permit = True
            else:
                self._done_bytes += count
                return count

    def close(self) -> None:
        had_permit, self._has_permit = self._has_permit, False
        try:
            self._reader.close()
        finally:
            if had_permit:
                self._release()
