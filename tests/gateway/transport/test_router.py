"""The router of a gateway over real sockets."""

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
    connected_fleet,
    cut,
    dial,
    fleet_of,
    frame,
    hello_key,
    on_jumping_loop,
    receipt_for,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.common.errors import GatewayLost, PathEnded
from skyplane_gateway.config import Route
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.transport import route_manager
from skyplane_gateway.transport.route import FIRST_FRAME_BYTES

RELAYED = ("a", "r", "b")
DIRECT = Route(0, ("a", "b"), (1,), 1.0)


#: Every way in which the hops of a -> r -> b can be dialed.
@pytest.mark.parametrize("dialed_by_downstream", [(), (0,), (1,), (0, 1)])
async def test_either_side_of_a_hop_may_dial(dialed_by_downstream: tuple[int, ...]) -> None:
    async with connected_fleet(Route(0, RELAYED, (3, 2), 1.0, dialed_by_downstream)) as fleet:
        routes = [fleet[node].route() for node in RELAYED]
        assert [len(route.upstream_links) for route in routes] == [0, 3, 2]
        assert [len(route.downstream_links) for route in routes] == [3, 2, 0]
        for _ in range(5):
            await there_and_back(fleet["a"], fleet["b"])
        (statistics,) = fleet["r"].router.statistics()
        assert (statistics["role"], statistics["frames"]) == ("relay", 5)


async def test_frames_down_a_tree_fit_its_slowest_first_hop() -> None:
    paths = ("a", "r", "b"), ("a", "r", "c"), ("a", "d")
    routes = [Route(n, path, (1,) * (len(path) - 1), 1.0, tree=9) for n, path in enumerate(paths)]
    async with connected_fleet(*routes) as fleet:
        router = fleet["a"].router
        assert router.frame_bytes(9) == FIRST_FRAME_BYTES
        for peer, size in (("r", 20_000), ("d", 900_000)):
            router._routes[9, peer].frame_bytes_wanted = size
        assert router.frame_bytes(9) == 20_000
        assert router.frame_bytes(0) == FIRST_FRAME_BYTES


@pytest.mark.parametrize("order", list(itertools.permutations(RELAYED)))
async def test_neighbours_that_dial_before_the_topology_is_known_join_later(
    order: tuple[str, ...],
) -> None:
    async with fleet_of(*RELAYED) as fleet:
        wanted = topology(fleet, Route(0, RELAYED, (2, 2), 1.0, (1,)))
        for node in order:
            apply(fleet, wanted, node)
            # The node dials now; its neighbours may not know the route.
            for _ in range(50):
                await asyncio.sleep(0)
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])
        assert all(not gateway.unanswered for gateway in fleet.values())


async def test_an_early_neighbour_that_leaves_again_is_forgotten() -> None:
    async with fleet_of("a", "b") as fleet:
        apply(fleet, topology(fleet, DIRECT), "a")
        await until(lambda: fleet["b"].unanswered)
        fleet["a"].crash()
        await until(lambda: not fleet["b"].unanswered)


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
async def test_a_wrong_neighbour_is_refused(node: str, side: Side, key: bytes | None) -> None:
    async with connected_fleet(DIRECT, Route(1, RELAYED, (1, 1), 1.0)) as fleet:
        assert await dial(fleet["b"], node, 0, side, key)
        # The real neighbours are not disturbed.
        assert fleet["b"].down == []
        await there_and_back(fleet["a"], fleet["b"])
        await there_and_back(fleet["a"], fleet["b"], route=1)


async def test_a_broken_connection_breaks_its_route_at_every_gateway_and_no_other() -> None:
    routes = Route(0, RELAYED, (2, 2), 1.0), Route(1, ("a", "b"), (1,), 1.0)
    async with connected_fleet(*routes) as fleet:
        fleet["a"].router._manager._dialer.pause_s = lambda failures: 3600.0  # type: ignore
        cut(fleet["b"])
        await until(lambda: all(gateway.down for gateway in fleet.values()))
        assert {number for gateway in fleet.values() for number, _ in gateway.down} == {0}
        assert "a -> r -> b" in fleet["a"].down[0][1]
        with pytest.raises(GatewayLost, match="a -> r -> b"):
            await fleet["a"].router.send_frame(frame(0))
        with pytest.raises(GatewayLost, match="no route 7"):
            await fleet["a"].router.send_frame(frame(7))
        await there_and_back(fleet["a"], fleet["b"], route=1)


async def test_applying_the_same_again_touches_nothing() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (3,), 1.0)) as fleet:
        before = list(fleet["a"].route().downstream_links)
        apply(fleet, topology(fleet, Route(0, ("a", "b"), (3,), 1.0)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert fleet["a"].route().downstream_links == before
        assert fleet["a"].down == fleet["b"].down == []


async def test_a_relay_that_was_replaced_is_dialed_at_its_new_address() -> None:
    """Also by neighbours that have not noticed: its machine vanished and closed nothing."""
    route = Route(0, RELAYED, (2, 2), 1.0)
    async with connected_fleet(route) as fleet:
        silent, fleet["r"] = fleet["r"], Gateway("r")
        try:
            await fleet["r"].listen()
            apply(fleet, topology(fleet, route))
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])
            # The frames on the old connections are lost, and reported as lost.
            assert [number for number, _ in fleet["a"].down] == [0]
        finally:
            silent.end()


async def test_a_changed_and_a_removed_route_end_first() -> None:
    async with connected_fleet(DIRECT, replace(DIRECT, number=1)) as fleet:
        kept = fleet["a"].route().downstream_links[0]
        apply(fleet, topology(fleet, Route(0, ("a", "b"), (2,), 1.0)))
        await connected(fleet)
        await until(lambda: len(fleet["b"].route().upstream_links) == 2)
        assert kept not in fleet["a"].route().downstream_links
        assert set(fleet["a"].router._routes) == {(0, "")}
        await there_and_back(fleet["a"], fleet["b"])
        fleet["b"].router.send_receipt(receipt_for(frame(1).header))  # Dropped.


async def test_a_neighbour_that_never_comes_breaks_the_route_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_manager, "_CONNECT_TIMEOUT_S", 0.0)
    async with fleet_of("a", "b") as fleet:
        wanted = topology(fleet, DIRECT)
        fleet["b"].end()
        apply(fleet, wanted, "a")
        await until(lambda: fleet["a"].down)
        assert "cannot connect to b" in fleet["a"].down[0][1]


@on_jumping_loop
async def test_a_neighbour_with_another_key_leaves_the_route_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_manager, "_CONNECT_TIMEOUT_S", 0.0)
    async with fleet_of("a") as fleet:
        fleet["b"] = Gateway("b", secret="another")
        await fleet["b"].listen()
        apply(fleet, topology(fleet, DIRECT), "a")
        await until(lambda: fleet["a"].down)


async def test_a_goodbye_reaches_a_neighbour_whose_frames_were_not_read() -> None:
    """A socket that is closed with unread bytes resets the connection. Then the neighbour's
    next write fails, and it never reads the goodbye."""
    async with connected_fleet(Route(0, RELAYED, (1, 1), 1.0)) as fleet:
        (upstream,) = fleet["r"].route().upstream_links
        upstream.pause_reading()
        await fleet["a"].router.send_frame(frame())
        leaving = asyncio.create_task(fleet["r"].router.leave())
        # The gateways share a loop: `a` writes before it has read anything.
        for _ in range(2):
            await asyncio.sleep(0)
        with contextlib.suppress(GatewayLost):
            await fleet["a"].router.send_frame(frame())
        await until(lambda: fleet["a"].down)
        assert isinstance(fleet["a"].router.loss(0), PathEnded)
        assert "r is ending" in fleet["a"].down[0][1]
        await leaving


async def test_a_route_of_one_gateway_needs_no_connection() -> None:
    async with connected_fleet(Route(0, ("a",), (), 1.0)) as fleet:
        await there_and_back(fleet["a"], fleet["a"])


async def test_garbage_is_refused_and_disturbs_no_route() -> None:
    async with connected_fleet(DIRECT) as fleet:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"\xff" * 70_000):
            reader, writer = await asyncio.open_connection(*fleet["b"].address)
            writer.write(garbage)
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
            writer.close()
        await there_and_back(fleet["a"], fleet["b"])


async def test_connections_without_proof_are_limited_and_keep_no_neighbour_out() -> None:
    async with fleet_of("a", "b", pending_limit=4) as fleet:
        crowd = [await asyncio.open_connection(*fleet["b"].address) for _ in range(20)]
        for reader, _ in crowd[:-5]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        # The topology has more connections than the limit.
        apply(fleet, topology(fleet, Route(0, ("a", "b"), (12,), 1.0)))
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])
        for _, writer in crowd:
            writer.close()


async def test_the_limit_allows_all_connections_of_the_topology_at_once() -> None:
    """All wait for the downstream hop; none is closed to make room for others."""
    async with fleet_of(*RELAYED, pending_limit=4) as fleet:
        apply(fleet, topology(fleet, Route(0, RELAYED, (12, 1), 1.0)), "r", "a")
        await until(lambda: len(fleet["r"].unanswered) == 12)
        apply(fleet, fleet["a"].router.topology or pytest.fail("none"), "b")
        await connected(fleet)
        assert not fleet["a"].down
