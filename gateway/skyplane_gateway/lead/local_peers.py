"""The lead's own gateway as a source and, in a fleet of one region, as a sink."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from skyplane_gateway.chunk_orders import ChunkOrder, ChunkOutcome
from skyplane_gateway.lead.peers import reasons_down
from skyplane_gateway.source.transfer import SourceTransfer


class LocalSource:
    """The lead's own source.

    Args:
        statistics: what the gateway says of its routes.
    """

    def __init__(
        self,
        node: str,
        source: SourceTransfer,
        statistics: Callable[[], Sequence[Mapping[str, Any]]],
    ) -> None:
        self.node = node
        self._source = source
        self._statistics = statistics

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        for order in orders:
            self._source.take(order)

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        return await self._source.outcomes(after, wait_s)

    async def waiting(self) -> list[tuple[int, int]]:
        return self._source.waiting()

    async def routes(self) -> dict[int, str]:
        return reasons_down(self._statistics())

    def close(self) -> None:
        """Nothing to let go of: the source is the service's."""


class LocalSink:
    """The lead's own destination."""

    def __init__(
        self, node: str, run: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    ) -> None:
        self.node = node
        self._run = run

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(verb, arguments)

    def close(self) -> None:
        """Nothing to let go of: the destination is the service's."""
