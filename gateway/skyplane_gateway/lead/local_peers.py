"""The lead's own gateway as a source and, in a fleet of one region, as a sink."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skyplane_gateway.orders import ChunkOrder, ChunkOutcome
from skyplane_gateway.source import SourceTransfer


class LocalSource:
    """The lead's own source; called from threads, it acts on the event loop."""

    def __init__(self, node: str, source: SourceTransfer, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._source = source
        self._loop = loop

    def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        for order in orders:
            self._loop.call_soon_threadsafe(self._source.take, order)

    def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        wait = self._source.outcomes(after, wait_s)
        return asyncio.run_coroutine_threadsafe(wait, self._loop).result()

    def close(self) -> None:
        """Nothing to let go of: the source is the service's."""


class LocalSink:
    """The lead's own destination."""

    def __init__(self, node: str, run: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> None:
        self.node = node
        self._run = run

    def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._run(verb, arguments)

    def close(self) -> None:
        """Nothing to let go of: the destination is the service's."""
