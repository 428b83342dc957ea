"""A chunk for several transfers of a group: it is read once, and crosses each edge of a tree once.

One of the transfers reads and sends it, and each gets a receipt of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from skyplane_gateway.common.errors import Overloaded, SkyplaneError
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, Content, Member, PartEntry
from skyplane_gateway.protocol.errors import LocalProtocolError
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import Sealing
from skyplane_gateway.source.chunk_orders import ChunkOrder
from skyplane_gateway.source.outcomes import SentChunk


class JoinedTransfer(Protocol):
    """A transfer at this source; see `SourceTransfer`."""

    transfer: bytes
    epoch: int

    def awaits(self, order: ChunkOrder) -> bool:
        """Whether the order has no outcome yet."""

    def enqueue(self, order: ChunkOrder, shared: SharedChunk | None = None) -> None:
        """Read and send the order; with `shared`, for all of its transfers."""

    def fail(self, order: ChunkOrder, error: SkyplaneError) -> None:
        """The order was not sent."""

    def begin(self, chunk: ChunkId, sending: SentChunk) -> None:
        """An order of this transfer is sent, perhaps by another; its receipt names `chunk`."""


#: The orders that one chunk serves, and what it is at the destination of each.
Orders = Sequence[tuple[JoinedTransfer, ChunkOrder]]
Contents = Sequence[tuple[JoinedTransfer, Content, SentChunk]]


@dataclass(slots=True, eq=False)
class SharedChunk:
    """Orders of several transfers for the same ranges, which one chunk serves.

    Attributes:
        chunk: as it is on the wire.
        sealing: of the group.
        framer: cuts its frames, once it is read.
    """

    chunk: ChunkId
    sealing: Sealing
    orders: Orders
    framer: ChunkFramer | None = None

    def is_wanted_beside(self, own: JoinedTransfer) -> bool:
        """Whether another transfer waits for it."""
        return any(source is not own and source.awaits(order) for source, order in self.orders)

    def begin(
        self,
        length: int,
        contents: Contents,
        framer_of: Callable[[ChunkId, ChunkManifest, Sealing], ChunkFramer],
    ) -> ChunkFramer | None:
        """Its framer; None where the manifest is too large: each order is sent alone."""
        members = tuple(_member(source, sent.order, content) for source, content, sent in contents)
        try:
            framer = framer_of(self.chunk, ChunkManifest(length, (), members), self.sealing)
        except LocalProtocolError:
            self.split()
            return None
        self.framer = framer
        for source, _, sending in contents:
            sending.framer = framer
            if source.awaits(sending.order):
                source.begin(replace(self.chunk, transfer=source.transfer), sending)
        return framer

    def split(self) -> None:
        """Send each order alone."""
        for source, order in self.orders:
            source.enqueue(order)

    def fail(self, error: SkyplaneError | None) -> None:
        """Nothing was sent, or not all of it. Without an error each is to be ordered again."""
        again = Overloaded("the chunk that it shared with other transfers was given up")
        for source, order in self.orders:
            source.fail(order, error or again)


def _member(source: JoinedTransfer, order: ChunkOrder, content: Content) -> Member:
    numbers = source.transfer.hex(), source.epoch, order.chunk, order.attempt
    if isinstance(content, PartEntry):
        return Member(*numbers, part=content)
    return Member(*numbers, objects=content)
