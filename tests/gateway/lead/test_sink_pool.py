"""Verbs at sinks that do not answer, and at sinks that answer that their store throttles."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from skyplane_gateway.errors import (
    GatewayLost,
    GatewayUnreachable,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.lead.sink_pool import Sinks

Run = Callable[[Any], Any]
STALL_S = 240.0


class FakeSink:
    """Throttles until `calm_s`, is gone from `gone_s` on, and hangs if told to."""

    def __init__(self, node: str, *, calm_s: float = 0.0, gone_s: float = 1e9) -> None:
        self.node = node
        self.calls = 0
        self.hangs = False
        self._calm_s = calm_s
        self._gone_s = gone_s

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        now_s = asyncio.get_running_loop().time()
        if self.hangs:
            await asyncio.sleep(1e6)
        if now_s >= self._gone_s:
            raise GatewayUnreachable("no answer")
        if now_s < self._calm_s:
            raise Throttled("slow down")
        return {"by": self.node}

    def close(self) -> None: ...


def sinks_of(*peers: FakeSink) -> Sinks:
    return Sinks(peers, stall_deadline_s=STALL_S, rng=random.Random(1))


def test_a_sink_whose_store_throttles_is_not_lost(virtual: Run) -> None:
    async def scenario() -> None:
        one, other = FakeSink("b", calm_s=200.0), FakeSink("d", calm_s=200.0)
        sinks = sinks_of(one, other)
        await sinks.call("create", {"key": "k"})
        assert (sinks.lost, sinks.doubtful_keys) == ({}, {})
        # The other would only ask the same store.
        assert sorted((one.calls == 0, other.calls == 0)) == [False, True]

    virtual(scenario())


@pytest.mark.parametrize("lost", [GatewayUnreachable("no answer"), StoreUnavailable("503")])
def test_an_upload_of_which_nobody_was_told_is_remembered(virtual: Run, lost: Exception) -> None:
    """Whether the sink or its store owes the answer; also when the next one did answer."""

    async def scenario() -> None:
        sink = FakeSink("b", calm_s=5.0)
        answer = sink.call

        async def call(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
            if sink.calls == 0:
                sink.calls += 1
                await asyncio.sleep(3.0)
                raise lost
            return await answer(verb, arguments)

        sink.call = call  # type: ignore[method-assign]
        sinks = sinks_of(sink)
        await asyncio.sleep(1.0)
        await sinks.call("create", {"key": "k"})
        assert sinks.doubtful_keys == {"k": 1.0}

    virtual(scenario())


def test_a_request_that_is_given_up_may_still_be_carried_out(virtual: Run) -> None:
    async def scenario() -> None:
        sink = FakeSink("b")
        sink.hangs = True
        sinks = sinks_of(sink)
        for verb in ("create", "list"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5.0):
                    await sinks.call(verb, {"key": verb})
        assert set(sinks.doubtful_keys) == {"create"}

    virtual(scenario())


def test_the_patience_with_a_store_has_an_end(virtual: Run) -> None:
    async def scenario() -> None:
        sinks = sinks_of(FakeSink("b", calm_s=1e9))
        with pytest.raises(StoreError, match="slow down"):
            await sinks.call("list", {})
        assert 300.0 <= asyncio.get_running_loop().time() <= 320.0

    virtual(scenario())


def test_silence_is_counted_from_the_last_answer(virtual: Run) -> None:
    """A sink that throttled for minutes and is gone then may still come back."""

    async def scenario() -> None:
        sinks = sinks_of(FakeSink("b", calm_s=1e9, gone_s=230.0))
        with pytest.raises(GatewayLost):
            await sinks.call("list", {})
        assert asyncio.get_running_loop().time() >= 220.0 + STALL_S

    virtual(scenario())


def test_at_the_end_nobody_waits_for_a_sink_that_hangs(virtual: Run) -> None:
    async def scenario() -> None:
        hung, other = FakeSink("b"), FakeSink("d")
        hung.hangs = True
        sinks = sinks_of(hung, other)
        for _ in range(20):
            assert await sinks.call_once("abort", {"key": "k"}, prefer="b")
        # One bound, and not one for each of the twenty.
        assert asyncio.get_running_loop().time() == pytest.approx(15.0)
        assert (hung.calls, other.calls) == (1, 20)

    virtual(scenario())
