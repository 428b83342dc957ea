from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.manual_clock import ManualClock

from skyplane_gateway.common.errors import GatewayUnreachable
from skyplane_gateway.lease import Lease, LeaseRenewer


class Other:
    """A gateway that is renewed, or does not answer."""

    def __init__(self, renewed: list[str], node: str) -> None:
        self._renewed = renewed
        self._node = node

    def renew(self, lease_s: float) -> None:
        if self._node == "silent":
            raise GatewayUnreachable("nobody answers")
        self._renewed.append(f"{self._node} {lease_s:g}")


def renewer_of(
    clock: ManualClock,
    progress: Callable[[], Any],
    others: tuple[str, ...] = (),
    lease_s: float = 5.0,
    kind: type[Other] = Other,
) -> tuple[LeaseRenewer, Lease, list[str]]:
    lease = Lease(clock.clock, start_within_s=10.0, lease_s=lease_s, hard_end_s=1000.0)
    renewed: list[str] = []
    connect: Any = lambda node: kind(renewed, node)  # noqa: E731
    renewer = LeaseRenewer(
        lease,
        lease_s=lease_s,
        stall_deadline_s=20.0,
        progress=progress,
        others=lambda: others,
        connect=connect,
        clock=clock.clock,
    )
    return renewer, lease, renewed


def test_a_transfer_without_progress_counts_until_the_stall_deadline() -> None:
    clock, seen = ManualClock(100.0), [1]
    renewer, _, _ = renewer_of(clock, lambda: seen[0])
    assert renewer.is_progressing()
    clock.now_s += 19
    assert renewer.is_progressing()
    clock.now_s += 1
    assert not renewer.is_progressing()
    seen[0] += 1
    assert renewer.is_progressing()


def test_no_running_transfer_is_no_progress_and_a_new_one_counts_at_once() -> None:
    clock, seen = ManualClock(100.0), [1, None]
    renewer, _, _ = renewer_of(clock, lambda: seen[0])
    assert renewer.is_progressing()
    clock.now_s += 50
    seen[0] = None
    assert not renewer.is_progressing()
    seen[0] = 1
    assert renewer.is_progressing()


def test_a_gateway_that_does_not_answer_does_not_delay_the_others() -> None:
    renewer, lease, renewed = renewer_of(ManualClock(100.0), lambda: 1, ("a", "silent", "b"))
    asyncio.run(renewer.renew_fleet())
    assert sorted(renewed) == ["a 5", "b 5"]
    assert lease.remaining_s == 5.0


async def test_a_gateway_that_hangs_does_not_delay_the_others_beyond_a_third_of_a_lease() -> None:
    """It has one renewal in flight at a time."""
    answers, asked = threading.Event(), []

    class Hanging(Other):
        def renew(self, lease_s: float) -> None:
            if self._node == "hanging":
                asked.append(self._node)
                answers.wait(60)
            super().renew(lease_s)

    nodes = ("a", "hanging", "b")
    renewer, _, renewed = renewer_of(ManualClock(100.0), lambda: 1, nodes, 0.3, Hanging)
    try:
        while min(renewed.count("a 0.3"), renewed.count("b 0.3")) < 3:
            await renewer.renew_fleet()
        assert asked == ["hanging"]
    finally:
        answers.set()
    while "hanging 0.3" not in renewed:
        await renewer.renew_fleet()


def test_leases_are_renewed_during_progress_and_expire_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody polls; the leases last for the transfer and the stall deadline."""
    clock, began, last_progress = ManualClock(100.0), 100.0, 100.0 + 300.0
    pause = asyncio.sleep

    async def advance(seconds: float) -> None:
        clock.now_s += seconds
        await pause(0)

    moved = lambda: min(clock.now_s, last_progress)  # noqa: E731
    renewer, lease, renewed = renewer_of(clock, moved, ("a",))
    lease.renew()
    monkeypatch.setattr(asyncio, "sleep", advance)
    asyncio.run(renewer.run())
    deadline_s, lease_s, step_s = 20.0, 5.0, 1.25
    assert last_progress + deadline_s <= clock.now_s + step_s
    assert clock.now_s <= last_progress + deadline_s + lease_s + step_s
    # A renewal every third of a lease, plus one step.
    assert len(renewed) >= (last_progress - began) / (lease_s / 3 + step_s) - 1


def test_the_renewer_ends_with_its_lease() -> None:
    clock = ManualClock(100.0)
    renewer, lease, _ = renewer_of(clock, lambda: None)
    clock.now_s += 10
    asyncio.run(renewer.run())
    assert lease.is_expired
