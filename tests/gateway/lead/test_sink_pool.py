from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from skyplane_gateway.common.errors import (
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.lead.backoff import POLICY, Retries
from skyplane_gateway.lead.sink_pool import SinkPeer, SinkPool

STALL_S = 240.0
GONE = GatewayUnreachable("no answer")


class FakeSink:
    """Throttles until `calm_s`, is gone from `gone_s` on, takes `takes_s` for each answer."""

    def __init__(
        self, node: str, *, calm_s: float = 0.0, gone_s: float = 1e9, takes_s: float = 0.0
    ) -> None:
        self.node = node
        self.calls = 0
        #: What the next calls raise.
        self.errors: list[SkyplaneError] = []
        self._calm_s = calm_s
        self._gone_s = gone_s
        self._takes_s = takes_s

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self._takes_s)
        if self.errors:
            raise self.errors.pop(0)
        if now_s >= self._gone_s:
            raise GONE
        if now_s < self._calm_s:
            raise Throttled("slow down")
        return {"by": self.node}


def pool_of(*peers: FakeSink) -> SinkPool:
    sinks = [SinkPeer(peer.node, peer.call) for peer in peers]
    return SinkPool(sinks, stall_deadline_s=STALL_S, retries=Retries(random.Random(1)))


async def test_sinks_take_turns_and_a_lost_one_comes_last() -> None:
    one, other = FakeSink("b"), FakeSink("d")
    pool = pool_of(one, other)
    assert {(await pool.call("list", {}))["by"] for _ in range(2)} == {"b", "d"}
    one.errors = [GONE]
    answers = [(await pool.call("list", {}))["by"] for _ in range(5)]
    # Once another sink has answered in its place, the lost one is not called again.
    assert answers[-3:] == ["d"] * 3
    assert pool.lost == {"b": "no answer"}


async def test_a_sink_whose_store_throttles_is_not_lost() -> None:
    one, other = FakeSink("b", calm_s=200.0), FakeSink("d", calm_s=200.0)
    pool = pool_of(one, other)
    await pool.call("create", {"key": "k"})
    # A service may say so of an upload that it has begun.
    assert (pool.lost, [*pool.unanswered_creates]) == ({}, ["k"])
    # The other sink would only ask the same store.
    assert sorted((one.calls == 0, other.calls == 0)) == [False, True]


async def test_a_store_that_throttles_forever_fails_the_verb() -> None:
    with pytest.raises(Throttled):
        await pool_of(FakeSink("b", calm_s=1e9)).call("list", {})
    assert 300.0 <= asyncio.get_running_loop().time() <= 320.0


async def test_a_store_that_hangs_fails_the_verb_after_minutes() -> None:
    """A sink answers after 25 s that its store does not."""
    sink = FakeSink("b", takes_s=25.0)
    sink.errors = [StoreUnavailable("no answer")] * POLICY.attempts
    with pytest.raises(StoreUnavailable):
        await pool_of(sink).call("write_journal", {})
    assert asyncio.get_running_loop().time() <= 180.0


async def test_without_any_sink_the_transfer_ends() -> None:
    with pytest.raises(GatewayLost, match=r"b is lost.*d is lost|d is lost.*b is lost"):
        await pool_of(FakeSink("b", gone_s=0.0), FakeSink("d", gone_s=0.0)).call("list", {})
    assert asyncio.get_running_loop().time() == pytest.approx(STALL_S, abs=11.0)


async def test_the_stall_deadline_counts_from_the_last_answer() -> None:
    """A sink that throttled for minutes before it was lost may come back."""
    with pytest.raises(GatewayLost):
        await pool_of(FakeSink("b", calm_s=1e9, gone_s=230.0)).call("list", {})
    assert asyncio.get_running_loop().time() >= 220.0 + STALL_S


@pytest.mark.parametrize("lost", [GONE, StoreUnavailable("503")])
async def test_a_creation_without_an_answer_is_noted(lost: SkyplaneError) -> None:
    """Also when the next request was answered: the store may have run both."""
    sink = FakeSink("b", takes_s=3.0)
    sink.errors = [lost]
    pool = pool_of(sink)
    await asyncio.sleep(1.0)
    await pool.call("create", {"key": "k"})
    assert pool.unanswered_creates == {"k": 1.0}


async def test_a_creation_that_was_cancelled_is_noted() -> None:
    pool = pool_of(FakeSink("b", takes_s=1e6))
    for verb in ("create", "list"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await pool.call(verb, {"key": verb})
    assert set(pool.unanswered_creates) == {"create"}


async def test_a_sink_that_hangs_delays_the_end_of_a_transfer_once() -> None:
    hung, other = FakeSink("b", takes_s=1e6), FakeSink("d")
    pool = pool_of(hung, other)
    for _ in range(20):
        assert await pool.try_call("abort", {"key": "k"})
    assert asyncio.get_running_loop().time() == pytest.approx(15.0)
    assert (hung.calls, other.calls) == (1, 20)


async def test_at_the_end_lost_sinks_are_not_called_again() -> None:
    one, other = FakeSink("b", gone_s=0.0), FakeSink("d", gone_s=0.0)
    pool = pool_of(one, other)
    for _ in range(6):
        assert not await pool.try_call("abort", {"key": "k"})
    assert (one.calls, other.calls) == (1, 1)
