"""One gateway on a tree: who gets a frame, and what a slow branch costs the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.transport.lab import FLEET, on_jumping_loop

from skyplane_gateway.common.errors import ConfigurationInvalid, GatewayLost
from skyplane_gateway.config import Route, Tree
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.transport.fork import BRANCH_FRAMES, BRANCH_WAIT_S, Fork


def tree(*paths: str) -> Tree:
    routes = (
        Route(number, tuple(path), (1,) * (len(path) - 1), 1.0, tree=9)
        for number, path in enumerate(paths)
    )
    return Tree.of(9, routes)


FAN = tree("arb", "arc", "ard")
ALL = 0b111


class Branch:
    """A hop whose network takes nothing until it is told to."""

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.sent: list[FrameHeader] = []
        self.generation = 0
        self.is_connected = True
        self.is_open = True
        self.taken: Callable[[], None] = lambda: None

    def forward(self) -> None:
        while self.is_open and self.waiting:
            self.sent.append(self.waiting.popleft()[0])

    def open(self) -> None:
        self.is_open = True
        self.forward()
        self.taken()

    def rebuild(self) -> None:
        self.generation += 1
        self.waiting.clear()
        self.taken()


class Link:
    """Counts whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Lab:
    """The fork at gateway r."""

    def __init__(self, of: Tree = FAN, node: str = "r") -> None:
        heads = [hop.nodes[1] for hop in of.hops if hop.nodes[0] == node]
        self.branches: Any = {head: Branch() for head in heads}
        self.cut: list[str] = []
        self.link: Any = Link()
        self.fork = Fork(of, node, self.branches.get, self._cut)

    def _cut(self, branch: Any, reason: str) -> None:
        self.cut += [head for head, one in self.branches.items() if one is branch]
        branch.rebuild()

    def receive(self, chunk: int, frame: int, bits: int = ALL) -> None:
        header = FrameHeader(ChunkId(FLEET, bytes(16), 0, 9, bits, chunk), frame, is_last=False)
        self.fork.received(self.link, header, memoryview(b"sealed"))

    def sent(self) -> dict[str, list[tuple[int, int]]]:
        return {
            head: [(header.chunk_id.chunk, header.frame) for header in branch.sent]
            for head, branch in self.branches.items()
        }


@on_jumping_loop
async def test_a_frame_goes_to_the_branches_of_its_sinks_alone() -> None:
    lab = Lab()
    lab.receive(1, 0)
    lab.receive(2, 0, 0b101)
    assert lab.sent() == {"b": [(1, 0), (2, 0)], "c": [(1, 0)], "d": [(1, 0), (2, 0)]}


@on_jumping_loop
async def test_a_branch_leads_to_all_sinks_behind_it() -> None:
    lab = Lab(tree("ab", "abc", "abx"), "b")
    lab.receive(1, 0, 0b010)
    assert lab.sent() == {"c": [(1, 0)], "x": []}
    header = FrameHeader(ChunkId(FLEET, bytes(16), 0, 9, 0b001, 1), 0, is_last=False)
    assert lab.fork.is_for_sink(header)


@on_jumping_loop
async def test_a_branch_that_was_rebuilt_gets_no_rest_of_a_chunk() -> None:
    lab = Lab()
    lab.receive(1, 0)
    lab.branches["c"].rebuild()
    lab.receive(1, 1)
    lab.receive(2, 0)
    assert lab.sent() == {"b": [(1, 0), (1, 1), (2, 0)], "c": [(1, 0), (2, 0)],
                          "d": [(1, 0), (1, 1), (2, 0)]}  # fmt: skip


@on_jumping_loop
async def test_a_full_branch_stops_the_reading_until_it_takes_frames() -> None:
    lab = Lab()
    for branch in lab.branches.values():
        branch.is_open = False
    for frame in range(BRANCH_FRAMES):
        assert lab.link.is_read
        lab.receive(1, frame)
    assert not lab.link.is_read
    # Nobody is held up by one alone, so nothing is cut.
    await asyncio.sleep(3 * BRANCH_WAIT_S)
    assert lab.cut == []
    for branch in lab.branches.values():
        branch.open()
    assert lab.link.is_read


@on_jumping_loop
async def test_a_branch_that_lets_others_starve_is_cut_off() -> None:
    lab = Lab()
    lab.branches["c"].is_open = False
    for frame in range(BRANCH_FRAMES):
        lab.receive(1, frame)
    assert not lab.link.is_read
    await asyncio.sleep(BRANCH_WAIT_S / 2)
    assert lab.cut == []
    await asyncio.sleep(BRANCH_WAIT_S)
    assert lab.cut == ["c"]
    assert lab.link.is_read


@on_jumping_loop
async def test_a_sink_that_passes_frames_on_is_not_held_up_either() -> None:
    lab = Lab(tree("ab", "abc"), "b")
    lab.branches["c"].is_open = False
    for frame in range(BRANCH_FRAMES):
        lab.receive(1, frame, 0b11)
    await asyncio.sleep(2 * BRANCH_WAIT_S)
    assert lab.cut == ["c"]


@on_jumping_loop
async def test_the_source_waits_for_a_full_branch_and_fails_without_one() -> None:
    lab = Lab(FAN, "a")
    header = FrameHeader(ChunkId(FLEET, bytes(16), 0, 9, ALL, 1), 0, is_last=False)
    frame = RawFrame(header, (b"sealed",), 6)
    lab.branches["r"].is_open = False
    for _ in range(BRANCH_FRAMES - 1):
        await lab.fork.send(frame)
    last = asyncio.create_task(lab.fork.send(frame))
    await asyncio.sleep(1)
    assert not last.done()
    lab.branches["r"].open()
    await last
    lab.branches["r"].rebuild()
    with pytest.raises(GatewayLost):
        await lab.fork.send(frame)


@pytest.mark.parametrize("paths", [("arb", "asb"), ("arb", "acrd"), ("ab", "ba")])
def test_routes_that_make_no_tree_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationInvalid, match="two upstream"):
        tree(*paths)
