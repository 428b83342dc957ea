"""The body of a ranged read that continues where it broke."""

from __future__ import annotations

from collections.abc import Callable

from skyplane_gateway.errors import StoreUnavailable, Throttled
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import ClosingReader, Reader
from skyplane_gateway.stores.wrappers.store_call import StoreCall


class RetryingReader(ClosingReader):
    """See `Reader`.

    Args:
        open_rest: opens the range after so many bytes; retries by itself.
        can_resume: every attempt reads the same version.
    """

    def __init__(
        self, open_rest: Callable[[int], Reader], *, can_resume: bool, call: StoreCall
    ) -> None:
        self._open_rest = open_rest
        self._can_resume = can_resume
        self._call = call
        self._done_bytes = 0
        self._reader = open_rest(0)

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
            except (Throttled, StoreUnavailable) as error:
                self._reader.close()
                if not self._can_resume:
                    raise
                self._call.wait_after(error)
                self._reader = self._open_rest(self._done_bytes)
            else:
                self._done_bytes += count
                return count

    def close(self) -> None:
        self._reader.close()


class PermitReader(ClosingReader):
    """A reader that releases its permit when it is closed."""

    def __init__(self, reader: Reader, release: Callable[[], None]) -> None:
        self._reader = reader
        self._release: Callable[[], None] | None = release

    @property
    def attributes(self) -> ObjectAttributes | None:
        return self._reader.attributes

    @property
    def not_carried(self) -> tuple[str, ...]:
        return self._reader.not_carried

    def readinto(self, buffer: memoryview) -> int:
        return self._reader.readinto(buffer)

    def close(self) -> None:
        release, self._release = self._release, None
        try:
            self._reader.close()
        finally:
            if release is not None:
                release()
