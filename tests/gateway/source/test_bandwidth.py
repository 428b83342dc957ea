"""The token bucket of a source, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings, strategies as st
from tests.gateway.virtual_time import run_virtually

from skyplane_gateway.source.bandwidth import Bandwidth


async def _send(bandwidth: Bandwidth, key: bytes, sizes: list[int]) -> float:
    """Send pieces one after the other; when the last was sent."""
    loop = asyncio.get_running_loop()
    for size in sizes:
        await bandwidth.take(key, size)
    return loop.time()


@given(
    st.lists(st.lists(st.integers(1, 5000), min_size=1, max_size=8), min_size=1, max_size=5),
    st.integers(1, 10_000),
)
@settings(deadline=None, max_examples=50)
def test_the_rate_is_exact_on_average(senders: list[list[int]], bytes_per_s: int) -> None:
    """Several senders of one or more transfers together need the time that the rate gives."""

    async def scenario() -> float:
        bandwidth = Bandwidth()
        keys = [bytes([number % 2]) for number in range(len(senders))]
        for key in keys:
            bandwidth.limit(key, bytes_per_s)
        began_s = asyncio.get_running_loop().time()
        sends = (_send(bandwidth, key, sizes) for key, sizes in zip(keys, senders, strict=True))
        return max(await asyncio.gather(*sends)) - began_s

    wanted_s = sum(map(sum, senders)) / bytes_per_s
    assert run_virtually(scenario()) == pytest.approx(wanted_s, abs=0.06)


def test_the_lowest_limit_holds_while_its_transfer_is_attached() -> None:
    async def scenario() -> tuple[float, float, float]:
        bandwidth = Bandwidth()
        bandwidth.limit(b"fast", 1000)
        bandwidth.limit(b"slow", 100)
        loop = asyncio.get_running_loop()
        first = await _send(bandwidth, b"fast", [1000]) - loop.time()
        began_s = loop.time()
        second = await _send(bandwidth, b"fast", [1000]) - began_s
        bandwidth.limit(b"slow", None)
        began_s = loop.time()
        third = await _send(bandwidth, b"fast", [1000]) - began_s
        return first, second, third

    _, second, third = run_virtually(scenario())
    assert second == pytest.approx(10.0, abs=0.06)
    assert third == pytest.approx(1.0, abs=0.06)


def test_a_transfer_without_a_limit_does_not_wait() -> None:
    async def scenario() -> float:
        bandwidth = Bandwidth()
        bandwidth.limit(b"slow", 1)
        began_s = asyncio.get_running_loop().time()
        return await _send(bandwidth, b"free", [10**9]) - began_s

    assert run_virtually(scenario()) == 0.0


def test_a_cancelled_sender_gives_its_tokens_back() -> None:
    async def scenario() -> float:
        bandwidth = Bandwidth()
        bandwidth.limit(b"k", 10)
        began_s = asyncio.get_running_loop().time()
        given_up = asyncio.create_task(_send(bandwidth, b"k", [1000]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        return await _send(bandwidth, b"k", [10]) - began_s

    assert run_virtually(scenario()) == pytest.approx(1.0, abs=0.06)
