"""Threads for the verbs of a lead, each call with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from skyplane_gateway.common.errors import StoreUnavailable, Throttled

T = TypeVar("T")


class VerbThreads:
    """Runs calls that wait for a store.

    They have threads of their own: such a call never waits for another gateway, so gateways
    cannot wait for one another in a ring. Slow calls do not delay quick ones.

    Args:
        count: threads for quick calls, and as many for slow ones.
    """

    def __init__(self, count: int) -> None:
        self._quick = ThreadPoolExecutor(count, thread_name_prefix="verb")
        self._slow = ThreadPoolExecutor(count, thread_name_prefix="long")
        #: Calls that wait for a thread, or run.
        self._calls: set[asyncio.Future[Any]] = set()

    async def run(
        self,
        call: Callable[[float], T],
        *,
        store_timeout_s: float,
        limit_s: float,
        what: str,
        is_slow: bool = False,
    ) -> T:
        """Run `call` with the seconds that it may wait for a store that throttles.

        Args:
            store_timeout_s: these seconds, before the wait for a thread.
            limit_s: the whole call.
            what: the store and the operation, for messages.
            is_slow: the call reads an object.

        Raises:
            Throttled: no thread was free in time; ask again.
            StoreUnavailable: the store did not respond in time; its thread still waits.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + store_timeout_s

        def work() -> T:
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise Throttled(
                    f"too many requests wait for the store {what}; this one was not sent"
                )
            return call(left_s)

        running = loop.run_in_executor(self._slow if is_slow else self._quick, work)
        self._calls.add(running)
        running.add_done_callback(self._calls.discard)
        try:
            async with asyncio.timeout(limit_s) as timeout:
                return await running
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise StoreUnavailable(
                f"no answer of the store {what} within {limit_s:g} s; check that it can be "
                "reached, then try again"
            ) from error

    async def finish(self) -> None:
        """Wait until no call runs."""
        while self._calls:
            await asyncio.wait(tuple(self._calls))

    def close(self) -> None:
        """Start no more calls; do not wait for those that run."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)
