"""Routes between gateways over real sockets, without anything else of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace

import pytest
from tests.gateway.transport.lab import (
    Gateway,
    apply,
    connected,
    cut,
    dial,
    fleet_of,
    frame,
    hello_key,
    receipt_for,
    run_jumping,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.config import Route
from skyplane_gateway.errors import GatewayLost, PathEnded
from skyplane_gateway.protocol import Side
from skyplane_gateway.transport import route_manager


#: Every way in which the hops of a -> r -> b can be dialled.
@pytest.mark.parametrize("dialled_by_downstream", [(), (0,), (1,), (0, 1)])
def test_either_side_of_a_hop_may_dial(dialled_by_downstream: tuple[int, ...]) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            route = Route(0, ("a", "r", "b"), (3, 2), 1.0, dialled_by_downstream)
            apply(fleet, topology(fleet, route))
            await connected(fleet)
            lanes = {node: gateway.routes._lanes[0] for node, gateway in fleet.items()}
            assert {n: (len(v.upstream), len(v.downstream)) for n, v in lanes.items()} == {
                "a": (0, 3),
                "r": (3, 2),
                "b": (2, 0),
            }
            for _ in range(5):
                await there_and_back(fleet["a"], fleet["b"])
            (statistics,) = fleet["r"].routes.statistics()
            assert (statistics["role"], statistics["frames"]) == ("relay", 5)

    asyncio.run(scenario())


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "r", "b"])))
def test_neighbours_that_dial_before_we_know_the_topology_are_claimed_later(
    order: tuple[str, ...],
) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(fleet, Route(0, ("a", "r", "b"), (2, 2), 1.0, (1,)))
            for node in order:
                apply(fleet, wanted, node)
                # The dialling side has dialled before its neighbour knows the route.
                for _ in range(50):
                    await asyncio.sleep(0)
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])
            assert all(not gateway.routes._builder._held for gateway in fleet.values())

    asyncio.run(scenario())


def test_an_early_neighbour_that_leaves_again_is_forgotten() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)), "a")
            await until(lambda: fleet["b"].routes._builder._held)
            fleet["a"].crash()
            await until(lambda: not fleet["b"].routes._builder._held)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("node", "side", "key"),
    [
        ("r", Side.UPSTREAM, None),  # On another route, but not on this one.
        ("b", Side.UPSTREAM, None),  # Itself.
        ("nobody", Side.UPSTREAM, None),
        ("a", Side.DOWNSTREAM, None),  # On the wrong side.
        ("a", Side.UPSTREAM, b"x" * 32),  # Without a key of the fleet.
        ("a", Side.UPSTREAM, hello_key("r", "b")),  # The relay, in the name of the source.
    ],
)
def test_a_wrong_neighbour_is_refused(node: str, side: Side, key: bytes | None) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(
                fleet, Route(0, ("a", "b"), (1,), 1.0), Route(1, ("a", "r", "b"), (1, 1), 1.0)
            )
            apply(fleet, wanted)
            await connected(fleet)
            assert await dial(fleet["b"], node, 0, side, key)
            # Those that belong there never noticed.
            assert fleet["b"].down == []
            await there_and_back(fleet["a"], fleet["b"])
            await there_and_back(fleet["a"], fleet["b"], route=1)

    asyncio.run(scenario())


def test_a_broken_connection_breaks_its_route_at_every_gateway_and_no_other() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(
                fleet, Route(0, ("a", "r", "b"), (2, 2), 1.0), Route(1, ("a", "b"), (1,), 1.0)
            )
            apply(fleet, wanted)
            await connected(fleet)
            fleet["a"].routes._builder._dialler.pause_s = lambda setbacks: 3600.0  # type: ignore
            cut(fleet["b"])
            await until(lambda: all(gateway.down for gateway in fleet.values()))
            assert {number for gateway in fleet.values() for number, _ in gateway.down} == {0}
            assert "a -> r -> b" in fleet["a"].down[0][1]
            with pytest.raises(GatewayLost, match="a -> r -> b"):
                await fleet["a"].routes.send_frame(frame(0))
            await there_and_back(fleet["a"], fleet["b"], route=1)

    asyncio.run(scenario())


def test_a_broken_route_is_repaired_by_applying_the_topology_again() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(fleet, Route(0, ("a", "r", "b"), (2, 2), 1.0))
            apply(fleet, wanted)
            await connected(fleet)
            for _ in range(2):
                cut(fleet["r"], index=-1)
                await until(lambda: all(g.routes.reason_down(0) for g in fleet.values()))
                apply(fleet, wanted)
                await connected(fleet)
                await there_and_back(fleet["a"], fleet["b"])

    asyncio.run(scenario())


def test_applying_the_same_again_touches_nothing() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            wanted = topology(fleet, Route(0, ("a", "b"), (3,), 1.0))
            apply(fleet, wanted)
            await connected(fleet)
            before = list(fleet["a"].routes._lanes[0].downstream)
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (3,), 1.0)))
            for _ in range(50):
                await asyncio.sleep(0)
            assert fleet["a"].routes._lanes[0].downstream == before
            assert fleet["a"].down == fleet["b"].down == []

    asyncio.run(scenario())


def test_a_relay_that_was_replaced_is_dialled_at_its_new_address() -> None:
    """Also by neighbours that have not noticed: its machine went without closing anything."""

    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            route = Route(0, ("a", "r", "b"), (2, 2), 1.0)
            apply(fleet, topology(fleet, route))
            await connected(fleet)
            silent, fleet["r"] = fleet["r"], Gateway("r")
            try:
                await fleet["r"].listen()
                apply(fleet, topology(fleet, route))
                await connected(fleet)
                await there_and_back(fleet["a"], fleet["b"])
                # What was under way over the old one is lost, and said to be.
                assert [number for number, _ in fleet["a"].down] == [0]
            finally:
                silent.end()

    asyncio.run(scenario())


def test_a_changed_and_a_removed_route_end_first() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(
                fleet,
                topology(fleet, Route(0, ("a", "b"), (1,), 1.0), Route(1, ("a", "b"), (1,), 1.0)),
            )
            await connected(fleet)
            kept = fleet["a"].routes._lanes[0].downstream[0]
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (2,), 1.0)))
            await connected(fleet)
            await until(lambda: len(fleet["b"].routes._lanes[0].upstream) == 2)
            assert kept not in fleet["a"].routes._lanes[0].downstream
            assert set(fleet["a"].routes._lanes) == {0}
            await there_and_back(fleet["a"], fleet["b"])
            fleet["b"].routes.send_receipt(receipt_for(frame(1).header))  # For nobody.

    asyncio.run(scenario())


def test_a_neighbour_that_never_comes_breaks_the_route_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_manager, "_STANDS_WITHIN_S", 0.0)

    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            wanted = topology(fleet, Route(0, ("a", "b"), (1,), 1.0))
            fleet["b"].end()
            apply(fleet, wanted, "a")
            await until(lambda: fleet["a"].down)
            assert "cannot connect to b" in fleet["a"].down[0][1]

    asyncio.run(scenario())


def test_a_neighbour_with_another_key_leaves_the_route_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_manager, "_STANDS_WITHIN_S", 0.0)

    async def scenario() -> None:
        async with fleet_of("a") as fleet:
            fleet["b"] = Gateway("b", secret="another")
            await fleet["b"].listen()
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)), "a")
            await until(lambda: fleet["a"].down)

    run_jumping(scenario())


def test_closing_ends_everything() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "r", "b"), (2, 2), 1.0)))
            await connected(fleet)
            fleet["r"].end()
            await until(lambda: fleet["a"].down and fleet["b"].down)
            assert "r is ending" in fleet["a"].down[0][1]
            with contextlib.suppress(GatewayLost):
                await fleet["a"].routes.send_frame(frame())

    asyncio.run(scenario())


def test_a_goodbye_reaches_a_neighbour_whose_frames_were_not_read() -> None:
    """A socket that is closed with unread bytes resets the connection. Then the neighbour's
    next write fails, and it never reads the goodbye."""

    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "r", "b"), (1, 1), 1.0)))
            await connected(fleet)
            (upstream,) = fleet["r"].routes._lanes[0].upstream
            upstream.pause_reading()
            await fleet["a"].routes.send_frame(frame())
            leaving = asyncio.create_task(fleet["r"].routes.leave())
            # The gateways share a loop: `a` writes before it has read anything.
            for _ in range(2):
                await asyncio.sleep(0)
            with contextlib.suppress(GatewayLost):
                await fleet["a"].routes.send_frame(frame())
            await until(lambda: fleet["a"].down)
            assert isinstance(fleet["a"].routes.loss(0), PathEnded)
            assert "r is ending" in fleet["a"].down[0][1]
            await leaving

    asyncio.run(scenario())


def test_a_route_of_one_gateway_needs_no_connection() -> None:
    async def scenario() -> None:
        async with fleet_of("a") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a",), (), 1.0)))
            assert fleet["a"].routes.is_connected
            await there_and_back(fleet["a"], fleet["a"])

    asyncio.run(scenario())


def test_garbage_is_refused_and_harms_nobody() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            route = Route(0, ("a", "b"), (1,), 1.0)
            apply(fleet, topology(fleet, route))
            await connected(fleet)
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"\xff" * 70_000):
                reader, writer = await asyncio.open_connection(*fleet["b"].address)
                writer.write(garbage)
                with contextlib.suppress(ConnectionError):
                    while await reader.read(65536):
                        pass
                writer.close()
            assert fleet["b"].routes._lanes[0].route == replace(route)
            await there_and_back(fleet["a"], fleet["b"])

    asyncio.run(scenario())


def test_a_crowd_that_proves_nothing_is_bounded_and_keeps_no_neighbour_out() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b", strangers=4) as fleet:
            crowd = [await asyncio.open_connection(*fleet["b"].address) for _ in range(20)]
            for reader, _ in crowd[:-5]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            # More connections than strangers are let in: the topology asks for them.
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (12,), 1.0)))
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])
            for _, writer in crowd:
                writer.close()

    asyncio.run(scenario())


def test_neighbours_that_come_early_are_as_many_as_the_topology_has() -> None:
    """All wait for the hop below them, unanswered; none is closed to make room for others."""

    async def scenario() -> None:
        async with fleet_of("a", "r", "b", strangers=4) as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "r", "b"), (12, 1), 1.0)), "r", "a")
            await until(lambda: len(fleet["r"].routes._builder._held) == 12)
            apply(fleet, fleet["a"].routes.topology or pytest.fail("none"), "b")
            await connected(fleet)
            assert not fleet["a"].down

    asyncio.run(scenario())
