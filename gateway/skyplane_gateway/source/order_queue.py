"""The orders of a source that no reader has taken yet."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from skyplane_gateway.source.chunk_orders import ChunkOrder


class OrderQueue(asyncio.Queue[ChunkOrder]):
    """The next order is of the route that the fewest readers serve.

    Else the orders of a slow route take all readers, and the other routes have nothing to send.
    """

    def _init(self, maxsize: int) -> None:
        self._waiting: dict[int, deque[ChunkOrder]] = {}
        self._readers: Counter[int] = Counter()

    def empty(self) -> bool:
        return not any(self._waiting.values())

    def _put(self, item: ChunkOrder) -> None:
        self._waiting.setdefault(item.route, deque()).append(item)

    def _get(self) -> ChunkOrder:
        some = (route for route, orders in self._waiting.items() if orders)
        route = min(some, key=self._readers.__getitem__)
        self._readers[route] += 1
        # Routes with as few take turns.
        orders = self._waiting[route] = self._waiting.pop(route)
        return orders.popleft()

    def done(self, order: ChunkOrder) -> None:
        """The reader that took the order is free."""
        self._readers[order.route] -= 1
