"""Looks at many objects of one store at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.errors import InvalidKey, NotFound, PreconditionFailed
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.readback import object_crc32c
from skyplane_gateway.stores.wrappers.retrying import sends_on_loops, try_head

#: Requests at once on an event loop, and in threads.
_AT_ONCE: Final = 64
_THREADS: Final = 16


def head_all(store: ObjectStore, keys: Sequence[str]) -> list[ObjectInfo | None]:
    """The object of each key with its attributes; None for none. 1 call for each."""
    if not keys:
        return []
    with ThreadPoolExecutor(_THREADS) as threads:
        found: dict[str, ObjectInfo] = {}
        if len(keys) > 1 and sends_on_loops(store):
            # A loop of its own: the caller's thread may have one that runs.
            found = threads.submit(_try_all, store, keys).result()
        left = {key: threads.submit(_look_at, store, key) for key in keys if key not in found}
        return [found[key] if key in found else left[key].result() for key in keys]


def _try_all(store: ObjectStore, keys: Sequence[str]) -> dict[str, ObjectInfo]:
    """The objects that requests on an event loop have found."""
    import asyncio  # Programs without an event loop do without it.

    from skyplane_gateway.stores.http_client import close_connections

    found: dict[str, ObjectInfo] = {}
    left = iter(keys)

    async def work() -> None:
        for key in left:
            info = await try_head(store, key)
            if info is not None:
                found[key] = info

    async def all_work() -> None:
        try:
            await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(keys)))))
        finally:
            close_connections()

    asyncio.run(all_work())
    return found


def _look_at(store: ObjectStore, key: str) -> ObjectInfo | None:
    try:
        return store.head(key)
    except (NotFound, InvalidKey):
        return None


def with_crc32c(store: ObjectStore, key: str) -> ObjectInfo | None:
    """The object with its CRC32C, as its store tells it or by reading it; None where it is gone.

    Raises as `object_crc32c`.
    """
    try:
        info, crc32c = object_crc32c(store, key)
    except (NotFound, PreconditionFailed):
        return None
    return replace(info, crc32c=crc32c)
