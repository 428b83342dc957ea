"""The frame-aware proxy does what its script says, and links behind it what they must."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.faults.frame_proxy import (
    DROP,
    PASS,
    Action,
    Behind,
    Delay,
    Flip,
    FrameProxy,
    Message,
    Pass,
    Reset,
    Script,
    Stall,
    Truncate,
    Way,
    frame_proxy,
    pass_all,
    random_script,
)
from tests.gateway.transport.lab import (
    HOST,
    Fleet,
    Gateway,
    connected,
    fleet_of,
    frame,
    run_jumping,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.config import Route, Topology
from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.protocol.messages import MessageType


@dataclass
class Pair:
    """Gateways a and b, and the proxy through which a reaches b."""

    fleet: Fleet
    proxy: FrameProxy

    @property
    def a(self) -> Gateway:
        return self.fleet["a"]

    @property
    def b(self) -> Gateway:
        return self.fleet["b"]


@asynccontextmanager
async def pair_over(
    script: Script, connections: int = 1, write_timeout_s: float = 60.0
) -> AsyncIterator[Pair]:
    route = Route(0, ("a", "b"), (connections,), 1.0)
    async with (
        fleet_of("a", "b", write_timeout_s=write_timeout_s) as fleet,
        frame_proxy(fleet["b"].address, script) as proxy,
    ):
        plain = topology(fleet, route)
        through = Topology(
            (route,), {**plain.data_addresses, "b": proxy.address}, plain.control_addresses
        )
        fleet["b"].router.apply(plain, HOST)
        fleet["a"].router.apply(through, HOST)
        await connected(fleet)
        yield Pair(fleet, proxy)


def on_frame(number: int, action: Action) -> Script:
    """The action for the DATA message of that number, over all connections."""
    seen = 0

    def script(message: Message) -> Action:
        nonlocal seen
        if message.kind is not MessageType.DATA:
            return PASS
        seen += 1
        return action if seen == number + 1 else PASS

    return script


def arrived(pair: Pair) -> list[int]:
    return [header.chunk for header in pair.b.frames]


async def send(pair: Pair, count: int = 3) -> list[int]:
    """Send chunks of one frame; their numbers."""
    frames = [frame() for _ in range(count)]
    for made in frames:
        await pair.a.router.send_frame(made)
    return [made.header.chunk for made in frames]


@pytest.mark.parametrize(
    ("action", "order"),
    [
        (PASS, (0, 1, 2)),
        (DROP, (0, 2)),
        (Pass(copies=2), (0, 1, 1, 2)),
        (Behind(), (0, 2, 1)),
        (Delay(30.0), (0, 1, 2)),
        (Flip(-20), (0, 1, 2)),  # In the sealed part: for the sink to see, not for links.
    ],
)
def test_a_frame_is_treated_as_the_script_says(action: Action, order: tuple[int, ...]) -> None:
    async def scenario() -> None:
        async with pair_over(on_frame(1, action)) as pair:
            chunks = await send(pair)
            expected = [chunks[index] for index in order]
            await until(lambda: len(pair.b.frames) >= len(expected))
            assert arrived(pair) == expected
            assert pair.a.down == []
            headers = [message.header for message in pair.proxy.seen]
            assert [header.chunk for header in headers if header is not None] == chunks

    run_jumping(scenario())


@pytest.mark.parametrize("action", [Reset(), Truncate(60), Flip(0), Flip(9)])
def test_what_breaks_a_connection_breaks_its_route_and_it_comes_back(action: Action) -> None:
    """A reset, half a frame, a frame of unknown type, one of another fleet."""

    async def scenario() -> None:
        async with pair_over(on_frame(1, action)) as pair:
            with contextlib.suppress(GatewayLost):
                await send(pair, 4)
            await until(lambda: pair.a.down and pair.b.down)
            await connected(pair.fleet)
            await there_and_back(pair.a, pair.b)
            # Nothing came twice: neither of the old connections nor of the new ones.
            assert len(arrived(pair)) == len(set(arrived(pair)))

    run_jumping(scenario())


def test_a_direction_that_stalls_is_noticed_by_its_sender() -> None:
    async def scenario() -> None:
        async with pair_over(on_frame(0, Stall()), write_timeout_s=20.0) as pair:
            pair.proxy.script = on_frame(0, Stall())
            big = frame(payload=bytes(1 << 19))

            async def flood() -> None:
                while True:
                    await pair.a.router.send_frame(big)

            with pytest.raises(GatewayLost, match="took nothing for 20 s"):
                await flood()
            pair.proxy.script = pass_all
            await connected(pair.fleet)
            await there_and_back(pair.a, pair.b)

    run_jumping(scenario())


def test_the_way_back_has_a_script_too() -> None:
    async def scenario() -> None:
        def script(message: Message) -> Action:
            is_receipt = message.kind is MessageType.RECEIPT
            assert message.way is (Way.BACK if is_receipt else message.way)
            return Pass(copies=2) if is_receipt else PASS

        async with pair_over(script) as pair:
            await there_and_back(pair.a, pair.b)
            await until(lambda: len(pair.a.receipts) == 2)

    run_jumping(scenario())


def test_a_random_script_is_the_same_for_the_same_seed() -> None:
    headers = [frame().header for _ in range(50)]
    messages = [
        Message(Way.THERE, 0, number, MessageType.DATA, header, b"")
        for number, header in enumerate(headers)
    ]

    def drawn(seed: int) -> list[Action]:
        script = random_script(seed, (DROP, Reset()), 0.5)
        return [script(message) for message in messages]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {type(action) for action in drawn(1)} == {Pass, Reset}


def test_garbage_is_not_passed_on() -> None:
    async def scenario() -> None:
        async with pair_over(pass_all) as pair:
            reader, writer = await asyncio.open_connection(*pair.proxy.address)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await there_and_back(pair.a, pair.b)

    asyncio.run(scenario())
