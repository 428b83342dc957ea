"""The body of a ranged read that is taken up again where it broke."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from skyplane_gateway.errors import StoreUnavailable, Throttled
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores.base import Reader
from skyplane_gateway.stores.wrappers.store_call import StoreCall


class RetryingReader:
    """See `Reader`.

    Args:
        opened: opens what is left of the range once so many bytes are read; one attempt.
        can_resume: every attempt reads the same version.
        call: the budget of the whole read.
    """

    def __init__(
        self, opened: Callable[[int], Reader], *, can_resume: bool, call: StoreCall
    ) -> None:
        self._opened = opened
        self._can_resume = can_resume
        self._call = call
        self._done = 0
        self._reader = self._reopened()

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
                self._reader = self._reopened()
            else:
                self._done += count
                return count

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reopened(self) -> Reader:
        while True:
            try:
                return self._opened(self._done)
            except (Throttled, StoreUnavailable) as error:
                self._call.wait_after(error)


class PermitReader:
    """A reader that gives its place at the store back when it is closed."""

    def __init__(self, reader: Reader, give_back: Callable[[], None]) -> None:
        self._reader = reader
        self._give_back: Callable[[], None] | None = give_back

    @property
    def attributes(self) -> ObjectAttributes | None:
        return self._reader.attributes

    @property
    def not_carried(self) -> tuple[str, ...]:
        return self._reader.not_carried

    def readinto(self, buffer: memoryview) -> int:
        return self._reader.readinto(buffer)

    def close(self) -> None:
        give_back, self._give_back = self._give_back, None
        try:
            self._reader.close()
        finally:
            if give_back is not None:
                give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
