"""A source and a sink over connections that are reset again and again."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from tests.faults.frame_proxy import Action, Delay, FrameProxy, Message, frame_proxy
from tests.gateway.transport.lab import HOST, run_jumping, until

from skyplane_gateway.chunk_orders import ChunkOrder, RangeOrder
from skyplane_gateway.config import Route, Topology
from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.objects import StoreSpec
from skyplane_gateway.protocol import FrameHeader, Identity, ReceiptHeader
from skyplane_gateway.protocol.messages import MessageType
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.sink.receiver import Sink, SinkTransfer
from skyplane_gateway.source.transfer import SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.memory import create_bucket
from skyplane_gateway.transport.router import Router

FLEET, TRANSFER, KEY = b"fleet-01", b"T" * 16, b"h" * 32
MIB = 1 << 20
OBJECTS = 30


def memory_store() -> ObjectStore:
    bucket = uuid.uuid4().hex
    create_bucket(bucket)
    return open_store(StoreSpec("memory", bucket))


def slow(message: Message) -> Action:
    """A frame takes its time, so that resets fall into chunks."""
    return Delay(0.15 if message.kind is MessageType.DATA else 0.0)


@dataclass
class Ends:
    """The source at a and the sink at b, and the little of a lead that is needed."""

    threads: ThreadPoolExecutor
    source_store: ObjectStore = field(default_factory=memory_store)
    sink_store: ObjectStore = field(default_factory=memory_store)
    losses: int = 0

    def __post_init__(self) -> None:
        self.receipts: Counter[tuple[int, int]] = Counter()
        self.a = Router(Identity(FLEET, "a", {"b": KEY}), _SourceOwner(self))
        self.b = Router(Identity(FLEET, "b", {"a": KEY}), _SinkOwner(self))
        self.source = SourceTransfer(
            fleet=FLEET,
            transfer=TRANSFER,
            epoch=1,
            store=self.source_store,
            send_frame=self.a.send_frame,
            threads=self.threads,
            readers=4,
            loss_of=self.a.loss,
        )
        self.sink = Sink(
            capacity_bytes=64 * MIB, send_receipt=self.b.send_receipt, threads=self.threads
        )
        self.sink.attach(TRANSFER, SinkTransfer(1, Destination(self.sink_store, "stored")))

    async def transfer(self, orders: dict[int, RangeOrder]) -> Counter[int]:
        """Send every order until it is durable; how often each one was told to be."""
        successes: Counter[int] = Counter()
        for chunk, wanted in orders.items():
            self.source.take(ChunkOrder(chunk, 1, 0, "objects", (wanted,)))
        after = 0
        while len(successes) < len(orders):
            after, outcomes = await self.source.outcomes(after, 5.0)
            for outcome in outcomes:
                (row,) = outcome.ranges
                if row.error is None:
                    successes[outcome.chunk] += 1
                    continue
                assert isinstance(row.error, GatewayLost), row.error
                self.losses += 1
                await asyncio.sleep(0.1)
                wanted = orders[outcome.chunk]
                self.source.take(
                    ChunkOrder(outcome.chunk, outcome.attempt + 1, 0, "objects", (wanted,))
                )
        return successes


class _Owner:
    """Owner of a router at one end; the other end gets what does not belong there."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        raise AssertionError("no frame comes to the source")

    def on_receipt(self, header: ReceiptHeader, sealed: memoryview) -> None:
        raise AssertionError("no receipt comes to the sink")

    def route_is_up(self, number: int) -> None: ...

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        self.ends.source.route_is_down(number, loss)


class _SourceOwner(_Owner):
    def on_receipt(self, header: ReceiptHeader, sealed: memoryview) -> None:
        self.ends.receipts[header.chunk, header.attempt] += 1
        self.ends.source.on_receipt(header, sealed)


class _SinkOwner(_Owner):
    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        self.ends.sink.on_frame(header, sealed)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        self.ends.sink.route_is_down(number)


async def reset_every(seconds: float, proxy: FrameProxy) -> None:
    while True:
        await asyncio.sleep(seconds)
        proxy.reset_all()


@pytest.mark.parametrize("connections", [1, 4])
def test_connections_reset_every_two_seconds_bring_everything_once(connections: int) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as threads:
            ends = Ends(threads)
            bodies = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(OBJECTS)}
            orders = {}
            for number, (key, body) in enumerate(bodies.items(), start=1):
                etag = ends.source_store.put(key, body).etag
                orders[number] = RangeOrder(key, etag, 0, len(body), key)
            server = await loop.create_server(ends.b.accept, HOST, 0)
            target = server.sockets[0].getsockname()[:2]
            async with frame_proxy(target, slow) as proxy:
                route = Route(0, ("a", "b"), (connections,), 1.0)
                for routes, address in ((ends.b, target), (ends.a, proxy.address)):
                    places = {"a": (HOST, 1), "b": address}
                    routes.apply(Topology((route,), places, places), HOST)
                await until(lambda: ends.a.is_connected)
                resetting = asyncio.create_task(reset_every(2.0, proxy))
                successes = await ends.transfer(orders)
                resetting.cancel()
                ends.a.close()
                ends.b.close()
            server.close()
            await ends.sink.drain()
            await ends.source.close()
            assert ends.losses > 0
            assert set(successes.values()) == {1}
            assert set(ends.receipts.values()) == {1}
            assert ends.sink.held_bytes == 0
            for key, body in bodies.items():
                copied = bytearray(len(body))
                with ends.sink_store.read(key, offset=0, length=len(body), if_match=None) as reader:
                    view = memoryview(copied)
                    while view:
                        view = view[reader.readinto(view) :]
                assert copied == body

    run_jumping(scenario())
