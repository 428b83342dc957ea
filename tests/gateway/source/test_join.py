"""Orders of several transfers for the same bytes become one chunk, or go alone in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.gateway.transport.lab import on_jumping_loop

from skyplane_gateway.protocol.sealing import UNSEALED
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder
from skyplane_gateway.source.join import JOIN_WAIT_S, Join
from skyplane_gateway.source.shared_chunk import SharedChunk

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
MEMBERS = (A, B, C)
TREE = 7


@dataclass(eq=False)
class Transfer:
    """Records what it is told to read."""

    transfer: bytes = A
    epoch: int = 1
    alone: list[int] = field(default_factory=list)
    shared: list[SharedChunk] = field(default_factory=list)
    gone: bool = False

    def awaits(self, order: ChunkOrder) -> bool:
        return not self.gone

    def enqueue(self, order: ChunkOrder, shared: SharedChunk | None = None) -> None:
        if shared is None:
            self.alone.append(order.chunk)
        else:
            self.shared.append(shared)

    begin: Any = None
    fail: Any = None


class Routes:
    """Route n follows the tree to the sink with bit n."""

    is_up = True

    def fork(self, number: int) -> Any:
        return self

    def leads_to(self, bits: int) -> bool:
        return self.is_up

    def branch(self, number: int) -> tuple[int, int] | None:
        return (TREE, 1 << number) if number < 9 else None


class Lab:
    def __init__(self) -> None:
        self.routes = Routes()
        self.join = Join(bytes(8), bytes(16), MEMBERS, self.routes, UNSEALED)
        self.transfers = {member: Transfer() for member in MEMBERS}

    def order(self, member: bytes, place: int, **more: Any) -> bool:
        """The transfer orders the range of that place; whether the join took it."""
        wanted = RangeOrder(f"key-{place:03}", "etag", 0, 10, "copy")
        order = ChunkOrder(place, 1, MEMBERS.index(member), "part", (wanted,))
        taken = self.join.offer(member, self.transfers[member], replace(order, **more))
        if not taken:
            self.transfers[member].alone.append(place)
        return taken

    @property
    def shared(self) -> list[SharedChunk]:
        return [one for transfer in self.transfers.values() for one in transfer.shared]

    @property
    def alone(self) -> list[list[int]]:
        return [transfer.alone for transfer in self.transfers.values()]


@on_jumping_loop
async def test_what_all_have_ordered_is_sent_once() -> None:
    lab = Lab()
    assert lab.order(B, 1)
    assert lab.order(A, 1)
    assert lab.shared == []
    assert lab.order(C, 1)
    (one,) = lab.shared
    assert (one.chunk.route, one.chunk.attempt) == (TREE, 0b111)
    assert len(one.orders) == 3
    assert lab.alone == [[], [], []]


@on_jumping_loop
async def test_who_is_late_is_not_waited_for_again_until_it_has_caught_up() -> None:
    lab = Lab()
    lab.order(A, 1)
    lab.order(B, 1)
    await asyncio.sleep(JOIN_WAIT_S + 1)
    (one,) = lab.shared
    assert one.chunk.attempt == 0b011
    lab.order(A, 2)
    lab.order(B, 2)
    assert len(lab.shared) == 2
    assert not lab.order(C, 1)
    assert lab.alone[2] == [1]
    assert lab.order(C, 3)
    lab.order(A, 3)
    lab.order(B, 3)
    assert [shared.chunk.attempt for shared in lab.shared if shared.orders[0][1].chunk == 3] == [7]


@pytest.mark.parametrize(
    "more",
    [{"attempt": 2}, {"strict_metadata": True}, {"route": 9}],
    ids=lambda row: next(iter(row)),
)
@on_jumping_loop
async def test_what_goes_alone_waits_for_nobody(more: dict[str, Any]) -> None:
    lab = Lab()
    assert not lab.order(A, 1, **more)


@on_jumping_loop
async def test_a_released_transfer_holds_nobody_up() -> None:
    lab = Lab()
    lab.order(A, 1)
    lab.order(B, 1)
    assert not lab.join.leave(C)
    assert len(lab.shared) == 1
    lab.join.leave(B)
    assert not lab.order(A, 2)
    assert lab.join.leave(A)


@on_jumping_loop
async def test_a_tree_that_is_down_shares_nothing() -> None:
    lab = Lab()
    lab.routes.is_up = False
    for member in MEMBERS:
        lab.order(member, 1)
    assert lab.shared == []
    assert lab.alone == [[1], [1], [1]]


@on_jumping_loop
async def test_an_order_that_has_ended_meanwhile_is_left_out() -> None:
    lab = Lab()
    for member in (A, B):
        lab.order(member, 1)
    lab.transfers[A].gone = True
    lab.order(C, 1)
    (one,) = lab.shared
    assert one.chunk.attempt == 0b110


@on_jumping_loop
async def test_a_transfer_that_orders_other_things_soon_waits_no_more() -> None:
    """One destination has other objects already than the others."""
    lab = Lab()
    lab.join.leave(C)
    for place in range(3):
        lab.order(A, place)
        await asyncio.sleep(JOIN_WAIT_S + 1)
        # So that it is waited for again.
        lab.order(B, 100 + place)
        await asyncio.sleep(JOIN_WAIT_S + 1)
    assert not lab.order(A, 50)
