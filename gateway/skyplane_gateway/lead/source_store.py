"""Blocking calls to the source's store, and the watch over those that nothing comes of.

A call that takes long is no harm: one request may list a folder of millions, or read a
terabyte for its checksum. A file server that is gone is: it lets a thread wait for ever. The
two are told apart by processor time, which a thread takes for whatever it does, also for
attempts that fail, and not while it waits for an answer that does not come.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final, TypeVar

from skyplane_gateway.errors import NotFound, PreconditionFailed, StoreUnavailable
from skyplane_gateway.lead.retry import THROTTLED_WITHIN_S, patiently
from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.readback import read_crc32c
from skyplane_gateway.stores.wrappers.retrying import is_throttling

T = TypeVar("T")

#: Looks at every call in the time that one may be silent.
_LOOKS: Final = 4

#: Whether one thread can ask for the processor time of another.
_HAS_CLOCKS: Final = hasattr(time, "pthread_getcpuclockid")


class SourceCalls:
    """What a lead asks of its source, in threads.

    Args:
        store: the source.
        threads: where its calls block; others use them as well.
        stall_deadline_s: how long a call may do nothing at all.
        rng: of the pauses between attempts.
    """

    def __init__(
        self,
        store: ObjectStore,
        threads: Executor,
        *,
        stall_deadline_s: float,
        rng: random.Random,
    ) -> None:
        self.store = store
        self._threads = threads
        self._stall_deadline_s = stall_deadline_s
        self._rng = rng
        self._under_way: set[_Call] = set()

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """What the call returns; `watch` looks after it meanwhile."""
        loop = asyncio.get_running_loop()
        under_way = _Call(loop.time())
        self._under_way.add(under_way)
        try:
            return await loop.run_in_executor(self._threads, under_way.run, call, *arguments)
        finally:
            self._under_way.discard(under_way)

    async def head(self, key: str) -> ObjectInfo:
        """As `ObjectStore.head`, with patience."""
        return await patiently(lambda: self.run(self.store.head, key), self._rng)

    async def crc32c(self, info: ObjectInfo) -> int | None:
        """CRC32C of that very version; None where it is not there any more.

        Raises:
            StoreError: it could not be read, often enough.
        """

        async def read() -> int:
            found = await self.run(read_crc32c, self.store, info, info.size_bytes)
            if found is None:
                raise StoreUnavailable(f"the body of {info.key!r} ended early; try again")
            return found

        try:
            return await patiently(read, self._rng)
        except (NotFound, PreconditionFailed):
            return None

    async def watch(self, progress: Callable[[], object]) -> None:
        """Look after the calls, until cancelled.

        Args:
            progress: a value that changes while the transfer moves.

        Raises:
            StoreUnavailable: for the stall deadline nothing came of a call, nor did anything
                else move. The next would fare no better, so that this is the end of the
                transfer, not of an object.
        """
        loop = asyncio.get_running_loop()
        before = progress()
        while True:
            await asyncio.sleep(self._stall_deadline_s / _LOOKS)
            now = progress()
            is_excused = now != before or is_throttling(self.store)
            before = now
            for call in self._under_way:
                silent_s = call.silent_s(loop.time(), is_excused=is_excused)
                # Whoever has the threads may wait for a store that throttles: another one.
                patience_s = 0.0 if call.has_begun else THROTTLED_WITHIN_S
                if silent_s >= self._stall_deadline_s + patience_s:
                    raise StoreUnavailable(
                        f"the source has not answered for {silent_s:.3g} s, nor done anything "
                        "else; see that it is mounted and can be reached, then try again"
                    )


class _Call:
    """One call, and when it was last seen to do something."""

    def __init__(self, now_s: float) -> None:
        self._seen_s = now_s
        self._clock: int | None = None
        self._worked_s = 0.0
        self.has_begun = False

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Carry it out, in its thread."""
        self._clock = _clock_of_this_thread()
        self.has_begun = True
        return call(*arguments)

    def silent_s(self, now_s: float, *, is_excused: bool) -> float:
        """For how long it has done nothing; 0 where the system does not tell."""
        worked_s = self._processor_time_s()
        if is_excused or worked_s is None or worked_s != self._worked_s:
            self._worked_s, self._seen_s = worked_s or 0.0, now_s
        return now_s - self._seen_s

    def _processor_time_s(self) -> float | None:
        """What its thread has taken, also before this call; None where that is not known."""
        if not self.has_begun:
            return 0.0
        if self._clock is not None:
            with suppress(OSError):  # The thread is gone, and so the call has ended.
                return time.clock_gettime(self._clock)
        return None


def _clock_of_this_thread() -> int | None:
    """Tells any thread how much processor time this one has taken."""
    if _HAS_CLOCKS:
        return time.pthread_getcpuclockid(threading.get_ident())
    return None
