"""The event loop of one simulated process: time, tasks and executors of its world."""

from __future__ import annotations

import asyncio
import asyncio.events
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tests.simulation.world import Process

T = TypeVar("T")

#: Threads of a pool that does not say how many it has.
_DEFAULT_WORKERS: Final = 64


def set_running(loop: asyncio.AbstractEventLoop | None) -> None:
    """Whose turn it is, for `asyncio.get_running_loop`."""
    asyncio.events._set_running_loop(loop)


@dataclass(slots=True)
class _Pool:
    """Calls of one executor: those under way, and those that wait for a thread."""

    workers: int
    active: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque)


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as the gateway uses, on the world's queue."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._pools: dict[int, _Pool] = {}
        #: All that are not done. Those of a killed process stay, or else the collector
        #: would run their clean-up.
        self.tasks: set[asyncio.Task[Any]] = set()

    # -- what asyncio's own parts ask for

    def time(self) -> float:
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._world.is_over

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._world.is_over and not self._process.is_dead:
            error = context.get("exception")
            self._process.unhandled.append(f"{context.get('message')}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays in the queue and does nothing when its time comes."""

    # -- callbacks

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._world.at(self._world.now, partial(_run, handle), self._process)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(max(when, self._world.now), partial(_run, handle), self._process)
        return handle

    # -- threads

    def set_default_executor(self, executor: Executor) -> None:
        """There is one already."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run in a thread of this world; no more at once than the executor has threads."""
        if getattr(executor, "_shutdown", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[T] = self.create_future()
        workers = getattr(executor, "_max_workers", _DEFAULT_WORKERS)
        pool = self._pools.setdefault(id(executor), _Pool(workers))
        start = partial(self._start, pool, future, func, args)
        if pool.active < pool.workers:
            start()
        else:
            pool.waiting.append(start)
        return future

    def _start(
        self,
        pool: _Pool,
        future: asyncio.Future[T],
        func: Callable[..., T],
        args: tuple[Any, ...],
    ) -> None:
        pool.active += 1

        def body() -> None:
            if not future.cancelled():
                self._call(future, func, args)
            pool.active -= 1
            if pool.waiting:
                pool.waiting.popleft()()

        self._world.start_thread(self._process, body)

    def _call(
        self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]
    ) -> None:
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - whatever a thread raises is its answer
            self.call_soon(_settle, future, None, error)
        else:
            self.call_soon(_settle, future, result, None)

    # -- the network

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        local_addr: tuple[str, int] | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._world.network.connect(self._process, protocol_factory, (host, port))

    # -- the end

    def drop_tasks(self) -> None:
        """End every task where it stands, in silence."""
        set_running(self)
        # Some want to wait in their clean-up, again and again.
        heard, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            while self.tasks:
                task = self.tasks.pop()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        finally:
            sys.unraisablehook = heard
            set_running(None)


def _close(coroutine: Any) -> None:
    with warnings.catch_warnings(), suppress(RuntimeError, BaseExceptionGroup):
        # Its clean-up may want to wait for something, or begin what is never awaited.
        warnings.simplefilter("ignore")
        coroutine.close()


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
