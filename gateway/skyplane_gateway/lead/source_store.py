"""Blocking calls to the source's store, in threads, with retries.

Every store but `file:` bounds its requests by read timeouts. A file server that is gone blocks
a thread forever, so calls to a `file:` source have a deadline.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreUnavailable
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.stores.base import ListedRows, ObjectStore, Wants, list_from
from skyplane_gateway.stores.readback import read_crc32c

T = TypeVar("T")

#: The slowest file system that a whole object is read from.
_READ_BYTES_PER_S: Final = 10e6


class SourceStore:
    """The source as the lead calls it.

    Args:
        threads: where calls block; others use them as well.
        deadline_s: longest time of a call to a file store without any progress.
        progress: a value that changes while the transfer makes progress.
        listed: rows that `list` need not ask the store for.
    """

    def __init__(
        self,
        store: ObjectStore,
        threads: Executor,
        *,
        deadline_s: float,
        progress: Callable[[], object],
        retries: Retries,
        listed: ListedRows | None = None,
    ) -> None:
        self.store = store
        self._threads = threads
        self._deadline_s = deadline_s
        self._progress = progress
        self._retries = retries
        self._listed = listed
        self._stalled = asyncio.Event()

    async def run(self, call: Callable[..., T], *arguments: Any, size_bytes: int = 0) -> T:
        """The result of a blocking call that reads `size_bytes`."""
        has_begun = threading.Event()

        def begin() -> T:
            has_begun.set()
            return call(*arguments)

        running = asyncio.get_running_loop().run_in_executor(self._threads, begin)
        if self.store.spec.kind != "file":
            return await running
        limit_s = self._deadline_s + size_bytes / _READ_BYTES_PER_S
        before = self._progress()
        while not (await asyncio.wait({running}, timeout=limit_s))[0]:
            now = self._progress()
            # A call that has not begun waits for a thread, not for the file system.
            if now == before and has_begun.is_set():
                self._stalled.set()
            before = now
        return await running

    def list(self, prefix: str, wants: Wants) -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`. Blocks, so iterate in `run`."""
        return list_from(self.store, prefix, self._listed, wants)

    async def head(self, key: str) -> ObjectInfo:
        """As `ObjectStore.head`, with retries."""
        return await self._retries.run(lambda: self.run(self.store.head, key))

    async def crc32c(self, info: ObjectInfo) -> int | None:
        """CRC32C of that version; None where it is gone. Retries."""
        size = info.size_bytes

        async def read() -> int:
            found = await self.run(read_crc32c, self.store, info, size, size_bytes=size)
            if found is None:
                raise StoreUnavailable(f"the body of {info.key!r} ended early; try again")
            return found

        try:
            return await self._retries.run(read)
        except (NotFound, PreconditionFailed):
            return None

    async def watch(self) -> None:
        """Wait for a call to miss its deadline; until cancelled. Raises StoreUnavailable.

        The next calls would miss it too, so the transfer ends.
        """
        await self._stalled.wait()
        raise StoreUnavailable(
            f"the source has not answered for {self._deadline_s:.3g} s; check that it is mounted "
            "and can be reached, then try again"
        )
