"""The other gateways as the lead sees them: sources that send, sinks that write.

The lead is a source itself and may be the only sink, so each has a form without a
network between (`local_peers`). All calls may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from skyplane_gateway.chunk_orders import ChunkOrder, ChunkOutcome
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.source.transfer import SourceTransfer


class SourcePeer(Protocol):
    """A gateway that reads ranges and sends them as chunks.

    Raises (every call):
        GatewayUnreachable: it does not answer.
        UnknownTransfer, StaleEpoch: it does not work for this lead.
    """

    @property
    def node(self) -> str: ...

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        """Hand over orders; an order that is known already is not taken twice."""

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Chunks that ended after sequence number `after`, and the newest number."""

    async def waiting(self) -> list[tuple[int, int]]:
        """(chunk, attempt) of orders whose bytes a store that throttles has yet to give."""

    async def routes(self) -> dict[int, str]:
        """The routes that begin there -> why each is down; empty while it is up."""

    def close(self) -> None:
        """Let go of connections."""


class SinkPeer(Protocol):
    """A gateway that writes at the destination."""

    @property
    def node(self) -> str: ...

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb of `Destination.run` there.

        Raises:
            GatewayUnreachable: it does not answer.
            UnknownTransfer, StaleEpoch: it does not work for this lead.
            StoreError: as the store says.
        """

    def close(self) -> None:
        """Let go of connections."""


class RemoteSource:
    """A source behind its control API."""

    def __init__(self, node: str, client: ControlClient, transfer_key: str, epoch: int) -> None:
        self.node = node
        self._client = client
        self._transfer_key = transfer_key
        self._epoch = epoch

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        documents = [order.to_dict() for order in orders]
        await asyncio.to_thread(self._client.dispatch, self._transfer_key, self._epoch, documents)

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        answer = await asyncio.to_thread(
            self._client.outcomes, self._transfer_key, self._epoch, after=after, wait_s=wait_s
        )
        return int(answer["last"]), [ChunkOutcome.from_dict(row) for row in answer["outcomes"]]

    async def waiting(self) -> list[tuple[int, int]]:
        answer = await asyncio.to_thread(self._client.waiting, self._transfer_key, self._epoch)
        return [(int(chunk), int(attempt)) for chunk, attempt in answer["chunks"]]

    async def routes(self) -> dict[int, str]:
        status = await asyncio.to_thread(self._client.status)
        return reasons_down(status["routes"])

    def close(self) -> None:
        self._client.close()


class RemoteSink:
    """A sink behind its control API."""

    def __init__(self, node: str, client: ControlClient, transfer_key: str, epoch: int) -> None:
        self.node = node
        self._client = client
        self._transfer_key = transfer_key
        self._epoch = epoch

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(
            self._client.store_verb, self._transfer_key, self._epoch, verb, arguments
        )

    def close(self) -> None:
        self._client.close()


def reasons_down(statistics: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """What `Router.statistics` says of the routes that begin at a gateway."""
    return {
        int(row["number"]): str(row["down"]) or ("" if row["connected"] else "it is not connected")
        for row in statistics
        if row["role"] == "source"
    }


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
