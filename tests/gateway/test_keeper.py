from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from skyplane_gateway.errors import GatewayUnreachable
from skyplane_gateway.keeper import Keeper
from skyplane_gateway.lease import Lease


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Other:
    """A gateway that is renewed, or does not answer."""

    def __init__(self, renewed: list[str], node: str) -> None:
        self._renewed = renewed
        self._node = node

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def renew(self, lease_s: float) -> None:
        if self._node == "silent":
            raise GatewayUnreachable("nobody answers")
        self._renewed.append(f"{self._node} {lease_s:g}")


def keeper_of(
    clock: Clock, progress: Callable[[], Any], others: tuple[str, ...] = ()
) -> tuple[Keeper, Lease, list[str]]:
    lease = Lease(clock, start_within_s=10.0, lease_s=5.0, hard_end_s=1000.0)
    renewed: list[str] = []
    connect: Any = lambda node: Other(renewed, node)  # noqa: E731
    keeper = Keeper(
        lease,
        lease_s=5.0,
        patience_s=20.0,
        progress=progress,
        others=lambda: others,
        connect=connect,
        clock=clock,
    )
    return keeper, lease, renewed


def test_nothing_that_runs_is_no_movement() -> None:
    keeper, _, _ = keeper_of(Clock(), lambda: None)
    assert not keeper.moves()


def test_a_transfer_that_stands_still_counts_for_a_while_only() -> None:
    clock, seen = Clock(), [1]
    keeper, _, _ = keeper_of(clock, lambda: seen[0])
    assert keeper.moves()
    clock.now += 19
    assert keeper.moves()
    clock.now += 1
    assert not keeper.moves()
    seen[0] += 1
    assert keeper.moves()


def test_a_second_transfer_that_starts_where_the_first_ended_counts_anew() -> None:
    clock, seen = Clock(), [1, None]
    keeper, _, _ = keeper_of(clock, lambda: seen[0])
    assert keeper.moves()
    clock.now += 50
    seen[0] = None
    assert not keeper.moves()
    seen[0] = 1
    assert keeper.moves()


def test_one_silent_gateway_does_not_keep_the_others_from_being_renewed() -> None:
    keeper, lease, renewed = keeper_of(Clock(), lambda: 1, ("a", "silent", "b"))
    asyncio.run(keeper.renew_fleet())
    assert sorted(renewed) == ["a 5", "b 5"]
    assert lease.remaining_s == 5.0


def test_it_ends_when_the_lease_does() -> None:
    clock = Clock()
    keeper, lease, _ = keeper_of(clock, lambda: None)
    clock.now += 10
    asyncio.run(keeper.run())
    assert lease.is_expired
