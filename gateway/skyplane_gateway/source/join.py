"""Joins the orders of several transfers for the same bytes, so that they are read and sent once.

The transfers of a group copy one source to several destinations. Each has its own lead, journal and
result. At a source gateway, the first order for a range waits until the others have ordered it too,
at most `JOIN_WAIT_S`; then one chunk goes down their tree. Who is late, and every attempt after the
first, goes by the route of its own transfer. So a join only saves bytes: nothing depends on it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import Sealing
from skyplane_gateway.source.chunk_orders import ChunkOrder
from skyplane_gateway.source.shared_chunk import JoinedTransfer, SharedChunk
from skyplane_gateway.transport.fork import Fork

#: So long does an order wait for those of the other transfers.
JOIN_WAIT_S: Final = 5.0
#: Ranges that are remembered: who orders one of them now is behind the others.
_REMEMBERED: Final = 8192
#: After so many waits for nothing, a transfer tries only one order of so many.
_LONELY, _TRY_EVERY = 2, 64
#: First number of a group's chunks: sinks remember those of an earlier process of this gateway.
_NUMBER_BITS: Final = 62

#: Tree, kind, and the ranges: key, ETag, offset, length.
RangesKey = tuple[int, str, tuple[tuple[str, str, int, int], ...]]


class TreeRoutes(Protocol):
    """The trees that begin at a gateway; see `Router`."""

    def fork(self, number: int) -> Fork | None: ...

    def branch(self, number: int) -> tuple[int, int] | None:
        """The tree that a route follows, and the bit of its sink; None without a tree."""


@dataclass(slots=True)
class _Held:
    timer: asyncio.TimerHandle
    orders: dict[bytes, tuple[JoinedTransfer, ChunkOrder]] = field(default_factory=dict)


class Join:
    """One group of transfers at one source.

    Args:
        group: its id on the wire.
        members: the ids of its transfers.
    """

    def __init__(
        self,
        fleet: bytes,
        group: bytes,
        members: Collection[bytes],
        routes: TreeRoutes,
        sealing: Sealing,
    ) -> None:
        self._fleet, self._group = fleet, group
        self._members = frozenset(members)
        self._routes = routes
        self._sealing = sealing
        self._held: dict[RangesKey, _Held] = {}
        #: Hashes of ranges: keys may be long, and one that is taken for another only goes alone.
        self._sent: OrderedDict[int, None] = OrderedDict()
        #: Members that nobody waits for: those that are behind, and those that have ended.
        self._behind: set[bytes] = set()
        self._left: set[bytes] = set()
        #: Member -> waits in a row to which nobody came, and orders since.
        self._lonely: Counter[bytes] = Counter()
        self._numbers = itertools.count(random.SystemRandom().getrandbits(_NUMBER_BITS))

    def enter(self, member: bytes) -> None:
        """A transfer is attached here."""
        self._left.discard(member)

    def leave(self, member: bytes) -> bool:
        """A transfer is released here; whether it was the last."""
        self._left.add(member)
        self._release_whole()
        return self._left >= self._members

    def offer(self, member: bytes, source: JoinedTransfer, order: ChunkOrder) -> bool:
        """Take an order, to send it with those of others; False: its transfer sends it alone."""
        branch = self._routes.branch(order.route)
        if branch is None or order.attempt != 1 or order.strict_metadata:
            return False
        ranges = tuple((one.source_key, one.etag, one.offset, one.length) for one in order.ranges)
        key = branch[0], order.kind, ranges
        held = self._held.get(key)
        if held is None:
            if hash(key) in self._sent:
                self._behind.add(member)
                return False
            self._behind.discard(member)
            if not self._may_wait(member):
                return False
            loop = asyncio.get_running_loop()
            held = self._held[key] = _Held(loop.call_later(JOIN_WAIT_S, self._expire, key))
        self._behind.discard(member)
        held.orders[member] = source, order
        self._release_if_whole(key)
        return True

    @property
    def _awaited(self) -> frozenset[bytes]:
        return self._members - self._behind - self._left

    def _may_wait(self, member: bytes) -> bool:
        if self._awaited <= {member}:
            return False
        if self._lonely[member] < _LONELY:
            return True
        self._lonely[member] += 1
        return self._lonely[member] % _TRY_EVERY == 0

    def _expire(self, key: RangesKey) -> None:
        held = self._held[key]
        self._behind |= self._awaited - held.orders.keys()
        if len(held.orders) == 1:
            self._lonely.update(held.orders.keys())
        self._release(key)
        self._release_whole()

    def _release_whole(self) -> None:
        """Nobody waits for a member any more."""
        for key in list(self._held):
            self._release_if_whole(key)

    def _release_if_whole(self, key: RangesKey) -> None:
        if self._awaited <= self._held[key].orders.keys():
            self._release(key)

    def _release(self, key: RangesKey) -> None:
        held = self._held.pop(key)
        held.timer.cancel()
        self._sent[hash(key)] = None
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)
        rows = [(source, order) for source, order in held.orders.values() if source.awaits(order)]
        tree, bits = key[0], 0
        for _, order in rows:
            branch = self._routes.branch(order.route)
            bits |= branch[1] if branch is not None and branch[0] == tree else 0
        fork = self._routes.fork(tree)
        if bits.bit_count() < max(2, len(rows)) or fork is None or not fork.leads_to(bits):
            for source, order in rows:
                source.enqueue(order)
            return
        for member in held.orders:
            self._lonely.pop(member, None)
        chunk = ChunkId(self._fleet, self._group, 0, tree, bits, next(self._numbers))
        shared = SharedChunk(chunk, self._sealing, rows)
        # The readers of all transfers work.
        source, order = rows[chunk.chunk % len(rows)]
        source.enqueue(order, shared)
