from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.manual_clock import ManualClock

from skyplane_gateway.errors import GatewayUnreachable
from skyplane_gateway.lease import Lease, LeaseRenewer


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
    clock: ManualClock, progress: Callable[[], Any], others: tuple[str, ...] = ()
) -> tuple[LeaseRenewer, Lease, list[str]]:
    lease = Lease(clock.clock, start_within_s=10.0, lease_s=5.0, hard_end_s=1000.0)
    renewed: list[str] = []
    connect: Any = lambda node: Other(renewed, node)  # noqa: E731
    keeper = LeaseRenewer(
        lease,
        lease_s=5.0,
        patience_s=20.0,
        progress=progress,
        others=lambda: others,
        connect=connect,
        clock=clock.clock,
    )
    return keeper, lease, renewed


def test_nothing_that_runs_is_no_movement() -> None:
    keeper, _, _ = keeper_of(ManualClock(100.0), lambda: None)
    assert not keeper.moves()


def test_a_transfer_that_stands_still_counts_for_a_while_only() -> None:
    clock, seen = ManualClock(100.0), [1]
    keeper, _, _ = keeper_of(clock, lambda: seen[0])
    assert keeper.moves()
    clock.now_s += 19
    assert keeper.moves()
    clock.now_s += 1
    assert not keeper.moves()
    seen[0] += 1
    assert keeper.moves()


def test_a_second_transfer_that_starts_where_the_first_ended_counts_anew() -> None:
    clock, seen = ManualClock(100.0), [1, None]
    keeper, _, _ = keeper_of(clock, lambda: seen[0])
    assert keeper.moves()
    clock.now_s += 50
    seen[0] = None
    assert not keeper.moves()
    seen[0] = 1
    assert keeper.moves()


def test_one_silent_gateway_does_not_keep_the_others_from_being_renewed() -> None:
    keeper, lease, renewed = keeper_of(ManualClock(100.0), lambda: 1, ("a", "silent", "b"))
    asyncio.run(keeper.renew_fleet())
    assert sorted(renewed) == ["a 5", "b 5"]
    assert lease.remaining_s == 5.0


def test_one_hanging_gateway_does_not_keep_the_others_from_being_renewed() -> None:
    """Its answer is waited for no longer than a third of a lease, and one call at a time."""
    answers, asked = threading.Event(), []

    class Hanging(Other):
        def renew(self, lease_s: float) -> None:
            if self._node == "hanging":
                asked.append(self._node)
                answers.wait(60)
            super().renew(lease_s)

    async def scenario() -> None:
        renewed: list[str] = []
        connect: Any = lambda node: Hanging(renewed, node)  # noqa: E731
        lease = Lease(ManualClock(100.0).clock, start_within_s=10.0, lease_s=0.3, hard_end_s=1000.0)
        keeper = LeaseRenewer(
            lease,
            lease_s=0.3,
            patience_s=20.0,
            progress=lambda: 1,
            others=lambda: ("a", "hanging", "b"),
            connect=connect,
            clock=ManualClock(100.0).clock,
        )
        try:
            while min(renewed.count("a 0.3"), renewed.count("b 0.3")) < 3:
                await keeper.renew_fleet()
            assert asked == ["hanging"]
        finally:
            answers.set()
        while "hanging 0.3" not in renewed:
            await keeper.renew_fleet()

    asyncio.run(scenario())


def test_leases_are_renewed_while_it_moves_and_run_out_when_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody polls: the chain holds as long as the transfer moves, and the patience."""
    clock, began, last_move = ManualClock(100.0), 100.0, 100.0 + 300.0
    pause = asyncio.sleep

    async def advance(seconds: float) -> None:
        clock.now_s += seconds
        await pause(0)

    moved = lambda: min(clock.now_s, last_move)  # noqa: E731
    keeper, lease, renewed = keeper_of(clock, moved, ("a",))
    lease.renew()
    monkeypatch.setattr(asyncio, "sleep", advance)
    asyncio.run(keeper.run())
    patience_s, lease_s, step_s = 20.0, 5.0, 1.25
    assert last_move + patience_s <= clock.now_s + step_s
    assert clock.now_s <= last_move + patience_s + lease_s + step_s
    # Each is renewed every third of a lease or so, and so never runs out in between.
    assert len(renewed) >= (last_move - began) / (lease_s / 3 + step_s) - 1


def test_it_ends_when_the_lease_does() -> None:
    clock = ManualClock(100.0)
    keeper, lease, _ = keeper_of(clock, lambda: None)
    clock.now_s += 10
    asyncio.run(keeper.run())
    assert lease.is_expired
