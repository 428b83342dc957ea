"""Which times of a route count as limited by its next hop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.gateway.transport.lab import Gateway, connected_fleet, frame, on_jumping_loop

from skyplane_gateway.config import Route
from skyplane_gateway.transport.saturation import SaturationMeter

MIB = 1 << 20


@dataclass
class Line:
    """A meter, and a clock that the test moves."""

    meter: SaturationMeter = field(default_factory=SaturationMeter)
    now_s: float = 100.0

    def send(self, frames: int, *, waiting_s: float, ready_s: float) -> Line:
        """Send frames, each after a wait for the line, and then one for the store."""
        for _ in range(frames):
            self.meter.note(self.now_s, waits=True)
            self.now_s += waiting_s
            self.meter.note(self.now_s, waits=False, sent_bytes=MIB)
            self.now_s += ready_s
        return self


def test_the_rate_of_a_full_line_is_that_of_the_line() -> None:
    meter = Line().send(101, waiting_s=0.1, ready_s=0.0).meter
    assert meter.seconds == pytest.approx(10.0, abs=1.1)
    assert meter.sent_bytes / meter.seconds == pytest.approx(10 * MIB, rel=0.02)


def test_a_slow_store_counts_no_second() -> None:
    meter = Line().send(200, waiting_s=0.01, ready_s=0.09).meter
    assert (meter.seconds, meter.sent_bytes) == (0.0, 0)


def test_only_the_full_part_of_a_transfer_counts() -> None:
    line = Line()
    line.send(200, waiting_s=0.0, ready_s=0.02)  # The start: buffers are empty, the line is fast.
    line.send(100, waiting_s=0.1, ready_s=0.0)
    line.send(10, waiting_s=0.0, ready_s=1.0)  # The tail: the last objects, one by one.
    assert line.meter.seconds == pytest.approx(10.0, abs=1.5)
    assert line.meter.sent_bytes / line.meter.seconds == pytest.approx(10 * MIB, rel=0.15)


def test_an_outage_is_not_a_slow_line() -> None:
    line = Line().send(51, waiting_s=0.1, ready_s=0.0)
    line.send(1, waiting_s=60.0, ready_s=0.0)
    line.send(51, waiting_s=0.1, ready_s=0.0)
    assert line.meter.seconds == pytest.approx(10.0, abs=2.2)
    assert line.meter.sent_bytes / line.meter.seconds == pytest.approx(10 * MIB, rel=0.05)


@on_jumping_loop
async def test_source_and_relay_report_how_long_their_next_hops_were_full() -> None:
    async with connected_fleet(Route(0, ("a", "r", "b"), (1, 1), 1.0)) as fleet:
        row = fleet["a"].router.statistics()[0]
        assert (row["saturated_s"], row["saturated_bytes"]) == (0.0, 0)
        sending = asyncio.create_task(send_all(fleet["a"], 240))
        (link,) = fleet["b"].route().links
        while not sending.done():
            link.pause_reading()
            await asyncio.sleep(0.3)
            link.resume_reading()
            await asyncio.sleep(0.001)
        for name in ("a", "r"):
            row = fleet[name].router.statistics()[0]
            assert row["saturated_s"] >= 2.0
            assert 0 < row["saturated_bytes"] <= row["frame_bytes"]
        assert fleet["b"].router.statistics()[0]["saturated_s"] == 0.0


async def send_all(source: Gateway, count: int) -> None:
    for _ in range(count):
        await source.router.send_frame(frame(payload=bytes(MIB // 2)))
