"""A neighbour that takes no receipts is not read either, so receipts do not pile up."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.transport.lab import Gateway, connected_fleet, frame, receipt_for, until

from skyplane_gateway.config import Route
from skyplane_gateway.protocol.messages import FrameHeader
from skyplane_gateway.protocol.receipt import RawReceipt
from skyplane_gateway.transport.link import WRITE_HIGH_BYTES

COUNT = 60
RECEIPT_BYTES = 400_000
CONNECTIONS = 2
#: What all connections of a hop may keep, each with the message that exceeded its limit.
BOUND_BYTES = CONNECTIONS * (WRITE_HIGH_BYTES + 2 * RECEIPT_BYTES)


def large_receipt(header: FrameHeader) -> RawReceipt:
    return RawReceipt(receipt_for(header).header, (bytes(RECEIPT_BYTES),))


def unsent_bytes(gateway: Gateway) -> int:
    """Receipts that wait for the upstream neighbour."""
    return sum(link._unsent_bytes() for link in gateway.route().upstream_links)


def stop_reading(gateway: Gateway) -> None:
    for link in gateway.route().links:
        link.pause_reading()


async def full(gateway: Gateway) -> None:
    """Wait until no more receipt can leave, and all that could still move has moved."""
    await until(lambda: not any(link.is_ready for link in gateway.route().upstream_links))
    for _ in range(300):
        await asyncio.sleep(0)


async def go_on(source: Gateway) -> None:
    for link in source.route().links:
        link.resume_reading()
    await until(lambda: len(source.receipts) == COUNT)


async def test_a_relay_reads_no_receipts_that_its_source_does_not_take() -> None:
    async with connected_fleet(Route(0, ("a", "r", "b"), (CONNECTIONS,) * 2, 1.0)) as fleet:
        stop_reading(fleet["a"])
        for _ in range(COUNT):
            fleet["b"].router.send_receipt(large_receipt(frame().header))
        await full(fleet["r"])
        assert unsent_bytes(fleet["r"]) <= BOUND_BYTES
        await go_on(fleet["a"])


async def test_a_sink_reads_no_frames_whose_receipts_nobody_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_frame(sink: Gateway, header: FrameHeader, sealed: memoryview) -> None:
        sink.router.send_receipt(large_receipt(header))

    monkeypatch.setattr(Gateway, "on_frame", on_frame)
    async with connected_fleet(Route(0, ("a", "b"), (CONNECTIONS,), 1.0)) as fleet:
        stop_reading(fleet["a"])

        async def send() -> None:
            for _ in range(COUNT):
                await fleet["a"].router.send_frame(frame(payload=bytes(100_000)))

        sending = asyncio.create_task(send())
        await full(fleet["b"])
        assert unsent_bytes(fleet["b"]) <= BOUND_BYTES
        await go_on(fleet["a"])
        await sending
