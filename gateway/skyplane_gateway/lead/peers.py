"""The other gateways as the lead sees them: sources that send, sinks that write.

Both are synchronous and thread-safe; the lead calls them from threads. The lead is a
source itself and may be the only sink, so each has a form without a network between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.orders import ChunkOrder, ChunkOutcome


class SourcePeer(Protocol):
    """A gateway that reads ranges and sends them as chunks."""

    @property
    def node(self) -> str: ...

    def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        """Hand over orders; an order that is known already is not taken twice."""

    def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Chunks that ended after sequence number `after`, and the newest number."""

    def close(self) -> None:
        """Let go of connections."""


class SinkPeer(Protocol):
    """A gateway that writes at the destination."""

    @property
    def node(self) -> str: ...

    def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb of `Destination.run` there."""

    def close(self) -> None:
        """Let go of connections."""


class RemoteSource:
    """A source behind its control API."""

    def __init__(self, node: str, client: ControlClient, transfer_key: str, epoch: int) -> None:
        self.node = node
        self._client = client
        self._transfer_key = transfer_key
        self._epoch = epoch

    def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        documents = [order.to_dict() for order in orders]
        self._client.dispatch(self._transfer_key, self._epoch, documents)

    def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        answer = self._client.outcomes(self._transfer_key, after=after, wait_s=wait_s)
        return int(answer["last"]), [ChunkOutcome.from_dict(row) for row in answer["outcomes"]]

    def close(self) -> None:
        self._client.close()


class RemoteSink:
    """A sink behind its control API."""

    def __init__(self, node: str, client: ControlClient, transfer_key: str, epoch: int) -> None:
        self.node = node
        self._client = client
        self._transfer_key = transfer_key
        self._epoch = epoch

    def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._client.store_verb(self._transfer_key, self._epoch, verb, arguments)

    def close(self) -> None:
        self._client.close()
