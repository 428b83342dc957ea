"""A gateway on a tree: passes each frame to the next hops that lead to its sinks.

A hop carries a frame once, whatever number of sinks is behind it. Each next hop (a branch) has a
queue of its own. While a queue is full, nothing is read from above, as on a route. But one branch
does not hold the others up for long: the time in which a full branch lets another one starve is
counted, and at `BRANCH_WAIT_S` the branch is broken. Its sinks are then served by their own routes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.errors import GatewayLost
from skyplane_gateway.config import Tree
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.route import LocalRoute

#: So long may a branch hold the others up.
BRANCH_WAIT_S: Final = 5.0
#: Time without holding anybody up counts so much against it: a branch may take a fifth of the time.
FORGIVEN: Final = 0.25
#: Frames that wait for one branch; each has at most 1 MiB.
BRANCH_FRAMES: Final = 16
#: Chunks whose branches are remembered.
_REMEMBERED: Final = 4096


class Fork:
    """One tree at one gateway.

    Args:
        branch_of: the hop to a neighbour as it is now.
        cut: breaks a branch, with the reason.
    """

    def __init__(
        self,
        tree: Tree,
        node: str,
        branch_of: Callable[[str], LocalRoute | None],
        cut: Callable[[LocalRoute, str], None],
    ) -> None:
        self.tree = tree
        self._branch_of = branch_of
        self._cut = cut
        self._own = tree.bits([node]) if node in tree.sinks else 0
        self.parent: str | None = None
        self._bits: dict[str, int] = {}
        for peer, hop in tree.hops_of(node).items():
            if hop.nodes[0] == node:
                self._bits[peer] = tree.bits_behind(peer)
            else:
                self.parent = peer
        #: Chunk -> the branches that have its first frames: neighbour -> generation. A branch that
        #: was rebuilt since gets no rest of a chunk.
        self._chunks: OrderedDict[ChunkId, dict[str, int]] = OrderedDict()
        self._paused: set[Link] = set()
        self._room = asyncio.Event()
        self._is_full = False
        #: Branches that hold others up now.
        self._holding: set[str] = set()
        self._held_s: dict[str, float] = dict.fromkeys(self._bits, 0.0)
        self._checked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def is_for_sink(self, header: FrameHeader) -> bool:
        return bool(header.chunk_id.attempt & self._own)

    def leads_to(self, bits: int) -> bool:
        """Whether every next hop to these sinks is up."""
        branches = (self._branch_of(head) for head, behind in self._bits.items() if bits & behind)
        return all(branch is not None and branch.is_connected for branch in branches)

    # -- frames

    async def send(self, frame: RawFrame) -> None:
        """Send a frame of this gateway's source; waits while a branch is full.

        Raises GatewayLost when no branch is left that has the frames before it.
        """
        if not self._pass_on(frame.header, frame.sealed):
            raise GatewayLost(f"no branch of tree {self.tree.number} is up")
        self.check()
        while self._is_full:
            self._room.clear()
            await self._room.wait()

    def received(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        """Pass on a frame from the hop above."""
        self._pass_on(header, (sealed,))
        self.check()
        if self._is_full:
            self._paused.add(link)
            link.pause_reading()

    def _pass_on(self, header: FrameHeader, sealed: tuple[Buffer, ...]) -> bool:
        found = False
        for head, generation in self._heads(header.chunk_id).items():
            branch = self._branch_of(head)
            if branch is not None and branch.generation == generation:
                found = True
                branch.taken = self.check
                branch.waiting.append((header, sealed, None))
                branch.forward()
        return found

    def _heads(self, chunk: ChunkId) -> dict[str, int]:
        heads = self._chunks.get(chunk)
        if heads is None:
            heads = self._chunks[chunk] = {
                head: branch.generation
                for head, bits in self._bits.items()
                if bits & chunk.attempt
                and (branch := self._branch_of(head)) is not None
                and branch.is_connected
            }
            if len(self._chunks) > _REMEMBERED:
                self._chunks.popitem(last=False)
        return heads

    # -- branches that are slow

    def check(self) -> None:
        """See which branches are full and hold others up; called when a queue has changed."""
        branches = {head: self._branch_of(head) for head in self._bits}
        waiting = {head: len(one.waiting) for head, one in branches.items() if one is not None}
        full = {head for head, count in waiting.items() if count >= BRANCH_FRAMES}
        is_starving = bool(self._own) or any(count == 0 for count in waiting.values())
        now_s = asyncio.get_running_loop().time()
        passed_s, self._checked_s = now_s - self._checked_s, now_s
        for head, held_s in self._held_s.items():
            change_s = passed_s if head in self._holding else -FORGIVEN * passed_s
            self._held_s[head] = max(0.0, held_s + change_s)
        self._holding = full if is_starving else set()
        self._is_full = bool(full)
        for head in self._holding:
            branch = branches[head]
            if branch is not None and self._held_s[head] >= BRANCH_WAIT_S:
                self._held_s[head] = 0.0
                self._cut(branch, f"it held the other branches up for {BRANCH_WAIT_S:g} s")
                return  # Its queue is empty now, which leads here again.
        if self._holding and self._timer is None:
            left_s = BRANCH_WAIT_S - max(self._held_s[head] for head in self._holding)
            self._timer = asyncio.get_running_loop().call_later(max(left_s, 0.01), self._time_out)
        if not full:
            self._room.set()
            paused, self._paused = self._paused, set()
            for link in paused:
                link.resume_reading()

    def _time_out(self) -> None:
        self._timer = None
        self.check()
