"""Which times of a route count as limited by its network, and what waits at a relay."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.gateway.transport.lab import Gateway, connected_fleet, frame, on_jumping_loop

from skyplane_gateway.config import Route
from skyplane_gateway.transport import link as links
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.route import SMALLEST_FRAME_BYTES, LocalRoute, SaturationMeter

MIB = 1 << 20


def metered(*samples: tuple[float, int, bool]) -> tuple[float, int]:
    """Seconds and bytes that count, of samples (time, MiB on the network so far, bytes wait)."""
    meter = SaturationMeter()
    for now_s, sent_mib, waits in samples:
        meter.sample(now_s, sent_mib * MIB, waits=waits)
    return meter.seconds, meter.sent_bytes // MIB


def test_times_between_two_samples_with_waiting_bytes_count() -> None:
    assert metered((7.0, 0, True), (8.0, 50, True), (9.5, 125, True)) == (2.5, 125)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([(1.0, 0, False), (2.0, 9, False), (3.0, 18, False)], id="a slow store"),
        pytest.param([(1.0, 0, False), (2.0, 250, True)], id="the start fills the buffers"),
        pytest.param([(1.0, 0, True), (2.0, 250, False)], id="the tail empties them"),
        pytest.param([(1.0, 0, True), (61.0, 9, True)], id="an outage is not a slow line"),
        pytest.param([(1.0, 500, True), (2.0, 4, True)], id="the connections are new ones"),
    ],
)
def test_other_times_do_not(samples: list[tuple[float, int, bool]]) -> None:
    assert metered(*samples) == (0.0, 0)


@on_jumping_loop
async def test_a_gateway_reports_how_long_bytes_waited_for_its_next_hop() -> None:
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


@on_jumping_loop
async def test_a_slow_source_saturates_nothing() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (1,), 1.0)) as fleet:
        for _ in range(40):
            await send_all(fleet["a"], 1)
            await asyncio.sleep(0.4)
        assert fleet["a"].router.statistics()[0]["saturated_s"] == 0.0


@on_jumping_loop
async def test_a_connection_that_was_just_lost_does_not_end_the_samples() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (1,), 1.0)) as fleet:
        (link,) = fleet["a"].route().links
        assert link._transport is not None
        link._transport.abort()  # The protocol learns it in the next turn of the loop.
        link.limit_queue(MIB)


async def test_little_waits_on_a_long_line_before_its_rate_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a short transfer waits for the slowest of its connections."""
    for rtt_us, most_bytes in ((0, links.FIRST_QUEUE_BYTES), (10**9, links.WRITE_HIGH_BYTES)):
        monkeypatch.setattr(links, "_LONG_LINE_US", rtt_us)
        async with connected_fleet(Route(0, ("a", "b"), (1,), 1.0)) as fleet:
            (link,) = fleet["a"].route().links
            assert link._transport._high_bytes == most_bytes  # type: ignore[union-attr]


class Sending:
    """A connection that sends so much each second, while more waits."""

    def __init__(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self.sent_bytes = self.most_bytes = 0

    def unsent_bytes(self) -> int:
        self.sent_bytes += self.bytes_per_s
        return 1

    def limit_queue(self, frame_bytes: int) -> None:
        self.most_bytes = frame_bytes


@on_jumping_loop
async def test_what_waits_on_a_connection_is_by_its_own_rate() -> None:
    route = LocalRoute("a", Route(0, ("a", "b"), (2,), 1.0), dict.fromkeys("ab", ("host", 1)))
    fast, slow = Sending(6 * MIB), Sending(MIB // 8)
    assert route.downstream_hop is not None
    route.downstream_hop.links.extend(cast(list[Link], [fast, slow]))
    route.count_frame(1)
    await asyncio.sleep(3.5)
    assert route._sampler is not None
    route._sampler.cancel()
    assert route.frame_bytes_wanted == fast.most_bytes > 0.3 * MIB
    assert slow.most_bytes == SMALLEST_FRAME_BYTES


@on_jumping_loop
async def test_the_time_in_which_a_route_stood_still_makes_no_frame_smaller() -> None:
    route = LocalRoute("a", Route(0, ("a", "b"), (1,), 1.0), dict.fromkeys("ab", ("host", 1)))
    link = Sending(6 * MIB)
    assert route.downstream_hop is not None
    route.downstream_hop.links.append(cast(Link, link))
    for _ in range(2):
        route.count_frame(1)
        await asyncio.sleep(3.5)
        assert route._sampler is not None
        route._sampler.cancel()
        route._sampler = None
        assert route.frame_bytes_wanted == link.most_bytes > 0.5 * MIB
        await asyncio.sleep(1000.0)
    route.count_frame(1)
    await asyncio.sleep(1.5)
    assert route._sampler is not None
    route._sampler.cancel()
    assert route.frame_bytes_wanted == link.most_bytes > 0.5 * MIB


class Neighbour:
    """A connection that takes a few frames, and then no more for a while."""

    def __init__(self) -> None:
        self.room = 0
        self.is_reading = True

    @property
    def is_ready(self) -> bool:
        return self.room > 0

    def send_frame(self, *_: Any) -> None:
        self.room -= 1

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


async def test_a_relay_reads_again_when_all_frames_of_one_read_have_left() -> None:
    """One read brings many small frames: else more arrive than leave."""
    addresses = dict.fromkeys("arb", ("host", 1))
    route = LocalRoute("r", Route(0, ("a", "r", "b"), (2, 1), 1.0), addresses)
    below, above = Neighbour(), [Neighbour(), Neighbour()]
    assert route.downstream_hop is not None
    route.downstream_hop.links.append(cast(Link, below))
    made = frame()
    try:
        for _ in range(20):
            for origin in above:
                if origin.is_reading:
                    for _ in range(10):
                        route.waiting.append((made.header, made.sealed, cast(Link, origin)))
                    origin.pause_reading()
            below.room = 4
            route.forward()
            assert len(route.waiting) <= 20
    finally:
        assert route._sampler is not None
        route._sampler.cancel()


async def send_all(source: Gateway, count: int) -> None:
    for _ in range(count):
        await source.router.send_frame(frame(payload=bytes(MIB // 2)))
