"""Probes: what they count, and that they reach no store."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from tests.gateway.transport.lab import connected_fleet, frame, on_jumping_loop, there_and_back
from tests.gateway.virtual_time import run_virtually

from skyplane_gateway.common.errors import ConfigurationInvalid, GatewayLost, Overloaded
from skyplane_gateway.config import ProbeReport, Route
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.protocol.limits import PROBE_TRANSFER
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import RawReceipt
from skyplane_gateway.transport.probe import Probes

ROUTE = 3


class Line:
    """A line with a buffer in front of it, in virtual time; both ends are the same `Probes`.

    Args:
        gbps: what it carries; a tenth of that in its first `slow_s` seconds.
        buffer_bytes: what senders can hand over before any of it has left.
    """

    def __init__(self, gbps: float, slow_s: float = 0.0, buffer_bytes: int = 8 << 20) -> None:
        self.gbps, self.slow_s, self.buffer_bytes = gbps, slow_s, buffer_bytes
        self.waiting: deque[RawFrame] = deque()
        self.room = asyncio.Event()
        self.chunks: list[ChunkId] = []
        self.probes = Probes(bytes(8), self.send, self.receipt)

    async def send(self, sent: RawFrame) -> None:
        while sum(map(size_of, self.waiting)) > self.buffer_bytes:
            self.room.clear()
            await self.room.wait()
        self.waiting.append(sent)

    def receipt(self, receipt: RawReceipt) -> None:
        self.probes.on_receipt(receipt.header)

    async def carry(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self.waiting:
                await asyncio.sleep(0.001)
                continue
            rate = self.gbps / 10 if loop.time() < self.slow_s else self.gbps
            await asyncio.sleep(size_of(self.waiting[0]) * 8 / (rate * 1e9))
            chunk = self.waiting.popleft().header.chunk_id
            self.chunks.append(chunk)
            self.room.set()
            self.probes.on_frame(chunk)

    async def measure(self, seconds: float) -> ProbeReport:
        carrying = asyncio.create_task(self.carry())
        try:
            return await self.probes.measure(ROUTE, 7, seconds)
        finally:
            carrying.cancel()


def size_of(sent: RawFrame) -> int:
    return sum(len(part) for part in sent.sealed)


@pytest.mark.parametrize("gbps", [0.05, 0.5, 2.0])
def test_the_rate_is_that_of_the_line_without_its_start(gbps: float) -> None:
    async def scenario() -> None:
        line = Line(gbps, slow_s=1.5)
        report = await line.measure(5.0)
        assert report.gbps == pytest.approx(gbps, rel=0.03)
        assert report.seconds == pytest.approx(3.0)
        assert report.bytes == pytest.approx(gbps * 1e9 / 8 * 3.0, rel=0.03)
        assert report.connections == 7
        # What the line has not carried is sent, and is not in the rate.
        assert report.sent_bytes > report.bytes
        assert {chunk.transfer for chunk in line.chunks} == {PROBE_TRANSFER}
        assert {chunk.route for chunk in line.chunks} == {ROUTE}

    run_virtually(scenario())


def test_a_line_that_carries_nothing_has_no_rate() -> None:
    async def scenario() -> None:
        line = Line(1e-6)
        report = await line.measure(1.0)
        assert (report.gbps, report.bytes) == (0.0, 0)
        assert report.sent_bytes > 0

    run_virtually(scenario())


@pytest.mark.parametrize("seconds", [0.0, -1.0, 61.0, float("nan")])
def test_a_time_that_is_no_probe_is_refused(seconds: float) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigurationInvalid, match=r"0\.1 to 60 seconds"):
            await Line(1.0).probes.measure(ROUTE, 1, seconds)

    run_virtually(scenario())


def test_a_route_has_one_probe_at_a_time() -> None:
    async def scenario() -> None:
        line = Line(1.0)
        first = asyncio.create_task(line.measure(1.0))
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded, match="route 3"):
            await line.probes.measure(ROUTE, 1, 1.0)
        assert (await first).bytes > 0
        assert (await line.measure(1.0)).bytes > 0

    run_virtually(scenario())


async def test_a_probe_over_a_relay_reaches_no_sink() -> None:
    async with connected_fleet(Route(0, ("a", "r", "b"), (3, 2), 1.0)) as fleet:
        report = await fleet["a"].router.probe(0, 0.2)
        assert report.bytes > 0
        assert report.connections == 3
        assert fleet["b"].frames == []
        assert fleet["a"].receipts == []
        await there_and_back(fleet["a"], fleet["b"])


@on_jumping_loop
async def test_a_probe_ends_with_its_route() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (1,), 1.0)) as fleet:
        probing = asyncio.create_task(fleet["a"].router.probe(0, 5.0))
        await asyncio.sleep(0.1)
        fleet["b"].crash()
        with pytest.raises(GatewayLost):
            await probing


async def test_only_a_route_that_leads_from_here_to_another_gateway_is_probed() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (1,), 1.0), Route(1, ("b",), (), 1.0)) as fleet:
        for node, number in (("b", 0), ("b", 1), ("a", 9)):
            with pytest.raises(GatewayLost, match=f"no route {number}"):
                await fleet[node].router.probe(number, 0.2)
        # The transfers of the tests have another id.
        assert frame().header.chunk_id.transfer != PROBE_TRANSFER
