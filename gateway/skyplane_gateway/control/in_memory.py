"""The control API between threads of one process: the same calls, without connections.

A gateway of this process has the address `(IN_MEMORY, number)`. Its callers need no certificate: a
caller shares its memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count

from skyplane_gateway.control.caller import Caller
from skyplane_gateway.stores.base import ListedRows

#: Answers a request with a status and a document: method, target, body, its caller, rows.
RequestHandler = Callable[
    [str, str, bytes, Callable[[], Caller], ListedRows | None],
    Awaitable[tuple[int, Mapping[str, object]]],
]

_numbers = count(1)
_servers: dict[int, MemoryServer] = {}


class MemoryServer:
    """Answers the callers of one gateway. Made on its event loop."""

    def __init__(self, answer: RequestHandler) -> None:
        self._answer = answer
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self.number = next(_numbers)
        _servers[self.number] = self

    async def answer(
        self,
        method: str,
        target: str,
        body: bytes,
        caller: Caller,
        listed: ListedRows | None = None,
    ) -> tuple[int, bytes]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            status, document = await self._answer(method, target, body, lambda: caller, listed)
        finally:
            self._tasks.discard(task)
        return status, json.dumps(document).encode()

    async def close(self, timeout_s: float) -> None:
        """Take no more calls, and end those under way."""
        del _servers[self.number]
        await asyncio.sleep(0)  # A call that has just come gets its task.
        if self._tasks:
            _, late = await asyncio.wait(tuple(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()


class MemoryConnections:
    """See `ConnectionPool`: calls to the gateway of that number, by `caller`.

    `listed` goes along with each call; only a submit uses it.
    """

    def __init__(self, number: int, caller: Caller, listed: ListedRows | None = None) -> None:
        self._number = number
        self._caller = caller
        self._listed = listed

    def bringing(self, listed: ListedRows) -> MemoryConnections:
        """The same connections, with rows of a source."""
        return MemoryConnections(self._number, self._caller, listed)

    def exchange(
        self, method: str, path: str, payload: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        server = _servers.get(self._number)
        if server is None:
            raise ConnectionRefusedError("it has ended")
        answering = server.answer(method, path, payload or b"", self._caller, self._listed)
        try:
            answer = asyncio.run_coroutine_threadsafe(answering, server.loop)
        except RuntimeError as error:
            answering.close()
            raise ConnectionRefusedError("it has ended") from error
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            answer.cancel()
            raise
        except asyncio.CancelledError as error:
            raise ConnectionResetError("it has ended") from error

    def close(self) -> None:
        """There is no connection."""
