"""Source gateways as the lead calls them: over the control API, or the lead's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, ChunkState
from skyplane_gateway.source.transfer import SourceTransfer


class RemoteSource:
    """A source behind its control API. Every call may be repeated.

    Raises (every call):
        GatewayUnreachable: it does not answer.
        UnknownTransfer, StaleEpoch: it does not serve this lead.
    """

    def __init__(self, node: str, client: ControlClient, transfer_key: str, epoch: int) -> None:
        self.node = node
        self._client = client
        self._transfer_key = transfer_key
        self._epoch = epoch

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        """Hand over orders; the source ignores an order that it knows already."""
        documents = [order.to_dict() for order in orders]
        await asyncio.to_thread(self._client.dispatch, self._transfer_key, self._epoch, documents)

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Chunks that ended after sequence number `after`, and the newest number."""
        answer = await asyncio.to_thread(
            self._client.outcomes, self._transfer_key, self._epoch, after=after, wait_s=wait_s
        )
        return int(answer["last"]), [ChunkOutcome.from_dict(row) for row in answer["outcomes"]]

    async def chunks(self) -> list[ChunkState]:
        """The orders that have moved bytes or wait, and have no outcome yet."""
        answer = await asyncio.to_thread(self._client.chunks, self._transfer_key, self._epoch)
        return [ChunkState(*row) for row in answer["chunks"]]

    async def routes(self) -> dict[int, str]:
        """The routes that begin there -> why each is down; empty while it is up."""
        status = await asyncio.to_thread(self._client.status)
        return _reasons_down(status["routes"])


@dataclass(frozen=True, slots=True, eq=False)
class LocalSource:
    """As `RemoteSource`, of the lead's own; `statistics` are those of the gateway's routes."""

    node: str
    source: SourceTransfer
    statistics: Callable[[], Sequence[Mapping[str, Any]]]

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        for order in orders:
            self.source.take(order)

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        return await self.source.outcomes(after, wait_s)

    async def chunks(self) -> list[ChunkState]:
        return self.source.chunks()

    async def routes(self) -> dict[int, str]:
        return _reasons_down(self.statistics())


#: A gateway that reads ranges and sends them as chunks.
SourcePeer = RemoteSource | LocalSource


def _reasons_down(statistics: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Route -> why it is down, of the routes that begin at the gateway."""
    return {
        int(row["number"]): str(row["down"]) or ("" if row["connected"] else "it is not connected")
        for row in statistics
        if row["role"] == "source"
    }
