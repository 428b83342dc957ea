"""A store whose small objects go over asyncio first, as at sources and sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from io import BytesIO
from typing import Any, TypeVar

from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
)
from skyplane_gateway.stores.async_requests import (
    AsyncRequests,
    Unsettled,
    WholeObject,
    requests_of,
)
from skyplane_gateway.stores.base import ClosingReader, ObjectStore, Reader
from skyplane_gateway.stores.http_client import close_connections

T = TypeVar("T")


class AsyncFirst:
    """See `ObjectStore`; `settled` counts the requests that needed no thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.settled = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _try(self, request: Callable[[AsyncRequests], Coroutine[Any, Any, T]]) -> T | None:
        requests = requests_of(self._store)
        assert requests is not None

        async def once() -> T:
            try:
                return await request(requests)
            finally:
                close_connections()

        try:
            found = asyncio.run(once())
        except Unsettled:
            return None
        self.settled += 1
        return found

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        if offset == 0:
            whole = self._try(lambda found: found.read(key, length=length, if_match=if_match))
            if whole is not None:
                return _Read(whole)
        return self._store.read(key, offset=offset, length=length, if_match=if_match)

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        if crc32c is not None:
            info = self._try(
                lambda found: found.put(
                    key,
                    data,
                    attributes=attributes or ObjectAttributes(),
                    precondition=precondition,
                    crc32c=crc32c,
                )
            )
            if info is not None:
                return info
        return self._store.put(
            key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
        )


class _Read(ClosingReader):
    def __init__(self, whole: WholeObject) -> None:
        self.attributes: ObjectAttributes | None = whole.attributes
        self.not_carried = whole.not_carried
        self.stated = whole.stated
        self._body = BytesIO(whole.data)

    def readinto(self, buffer: memoryview) -> int:
        return self._body.readinto(buffer)

    def close(self) -> None:
        pass
