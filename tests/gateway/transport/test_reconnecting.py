"""Routes that break are rebuilt, and nothing old comes through them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import replace

import pytest
from tests.gateway.transport.lab import (
    Gateway,
    apply,
    connected,
    connected_fleet,
    cut,
    dial,
    frame,
    on_jumping_loop,
    revive,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.common.errors import GatewayLost
from skyplane_gateway.config import Route
from skyplane_gateway.protocol.events import Established
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.route_manager import RouteManager

DIRECT = Route(0, ("a", "b"), (1,), 1.0)
RELAYED = Route(0, ("a", "r", "b"), (2, 2), 1.0)


@pytest.mark.parametrize("dialed_by_downstream", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("broken_at", ["a", "r", "b"])
@on_jumping_loop
async def test_a_broken_route_comes_back_by_itself(
    broken_at: str, dialed_by_downstream: tuple[int, ...]
) -> None:
    async with connected_fleet(
        replace(RELAYED, dialed_by_downstream=dialed_by_downstream)
    ) as fleet:
        for breaks in range(3):
            cut(fleet[broken_at])
            await until(
                lambda: all(len(gateway.down) > breaks for gateway in fleet.values())  # noqa: B023
            )
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])
        for gateway in fleet.values():
            assert len(gateway.up) == len(gateway.down) + 1


@on_jumping_loop
async def test_a_waiting_sender_does_not_use_the_new_connections() -> None:
    async with connected_fleet(DIRECT) as fleet:
        (link,) = fleet["a"].route().downstream_links
        link.is_ready = False
        waiting = asyncio.create_task(fleet["a"].router.send_frame(frame()))
        await asyncio.sleep(0)
        link.abort("cut by the test")
        with pytest.raises(GatewayLost):
            await waiting
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])
        assert len(fleet["b"].frames) == 1


@pytest.mark.parametrize("dialed_by_downstream", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("killed", ["a", "r", "b"])
@on_jumping_loop
async def test_a_killed_gateway_is_dialed_until_it_is_back(
    killed: str, dialed_by_downstream: tuple[int, ...]
) -> None:
    route = replace(RELAYED, dialed_by_downstream=dialed_by_downstream)
    async with connected_fleet(route) as fleet:
        wanted = topology(fleet, route)
        fleet[killed].crash()
        alive = [gateway for node, gateway in fleet.items() if node != killed]
        await until(lambda: all(gateway.down for gateway in alive))
        await asyncio.sleep(300)
        await revive(fleet, killed, wanted)
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])


@on_jumping_loop
async def test_the_source_is_accepted_only_when_all_hops_downstream_are_complete() -> None:
    """Otherwise the source would send into a path that ends at the relay."""
    async with connected_fleet(RELAYED) as fleet:
        wanted = topology(fleet, RELAYED)
        fleet["b"].crash()
        await until(lambda: fleet["a"].down)
        ups = len(fleet["a"].up)
        await asyncio.sleep(300)
        assert len(fleet["a"].up) == ups
        assert len(fleet["a"].down) == 1
        # Unanswered connections do not pile up.
        assert len(fleet["r"].unanswered) <= 2
        await revive(fleet, "b", wanted)
        await connected(fleet)


@on_jumping_loop
async def test_a_fleet_that_is_ending_is_not_dialed_any_more() -> None:
    async with connected_fleet(RELAYED) as fleet:
        fleet["b"].end()
        await until(lambda: fleet["a"].down)
        for node in ("a", "r"):
            route = fleet[node].route()
            assert route.is_ended
            assert not route.dials
        assert "b is ending" in str(fleet["a"].router.loss(0))


@on_jumping_loop
async def test_a_route_that_ended_in_order_is_rebuilt_when_its_topology_is_applied() -> None:
    async with connected_fleet(RELAYED) as fleet:
        wanted = topology(fleet, RELAYED)
        fleet["r"].end()
        await until(lambda: fleet["a"].down and fleet["b"].down)
        await revive(fleet, "r", wanted)
        apply(fleet, wanted)
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])


def _known(gateway: Gateway) -> Incarnation:
    """The incarnation of the connections that `a` has to this gateway."""
    above = gateway.route().upstream_hop
    assert above is not None
    assert above.incarnation is not None
    return above.incarnation


@on_jumping_loop
async def test_a_connection_of_an_earlier_incarnation_is_closed_alone() -> None:
    async with connected_fleet(Route(0, ("a", "b"), (2,), 1.0)) as fleet:
        first = _known(fleet["b"])
        cut(fleet["b"])
        await until(lambda: fleet["b"].down)
        # While the route is down,
        reason = await dial(fleet["b"], "a", 0, nonce=first.nonce(random.Random(1)))
        assert "connections that are gone" in reason
        await connected(fleet)
        # and while it is up; also from a process that was replaced.
        downs = len(fleet["b"].down)
        for old in (first, Incarnation(first.started - 1, first.count + 9)):
            reason = await dial(fleet["b"], "a", 0, nonce=old.nonce(random.Random(1)))
            assert "connections that are gone" in reason
        assert len(fleet["b"].down) == downs
        await there_and_back(fleet["a"], fleet["b"])


@on_jumping_loop
async def test_a_later_incarnation_replaces_the_current_one() -> None:
    """Its dialer has lost the old connections; their end may arrive later."""
    async with connected_fleet(Route(0, ("a", "b"), (2,), 1.0)) as fleet:
        known = _known(fleet["b"])
        later = Incarnation(known.started + 1, 1)
        dialing = asyncio.create_task(dial(fleet["b"], "a", 0, nonce=later.nonce(random.Random(1))))
        await until(lambda: fleet["b"].down)
        assert "anew" in fleet["b"].down[0][1]
        assert len(fleet["b"].route().upstream_links) == 1
        dialing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dialing


@on_jumping_loop
async def test_frames_and_receipts_of_old_connections_are_dropped() -> None:
    async with connected_fleet(DIRECT) as fleet:
        (old,) = fleet["b"].route().upstream_links
        cut(fleet["b"])
        await until(lambda: fleet["a"].down and fleet["b"].down)
        await connected(fleet)
        late = frame()
        fleet["b"].router.frame_received(old, late.header, memoryview(b""))
        assert fleet["b"].frames == []


@on_jumping_loop
async def test_a_route_that_flaps_for_hours_costs_a_few_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with connected_fleet(DIRECT) as fleet:
        for breaks in range(1, 301):
            await asyncio.sleep(10)
            cut(fleet["a"])
            await until(lambda: all(len(fleet[node].down) >= breaks for node in "ab"))  # noqa: B023
            await connected(fleet)
    lines = [record for record in caplog.records if record.name.startswith("skyplane_gateway")]
    # Each gateway logs that the route is down, and up again.
    assert 4 <= len(lines) <= 60


@on_jumping_loop
async def test_a_peer_that_stops_reading_breaks_the_route() -> None:
    async with connected_fleet(DIRECT, write_timeout_s=30.0) as fleet:
        (link,) = fleet["b"].route().upstream_links
        link.pause_reading()
        big = frame(payload=bytes(1 << 19))

        async def flood() -> None:
            while True:
                await fleet["a"].router.send_frame(big)

        with pytest.raises(GatewayLost, match="took nothing for 30 s"):
            await flood()
        await connected(fleet)
        await there_and_back(fleet["a"], fleet["b"])


@on_jumping_loop
async def test_a_sink_drops_what_has_come_before_its_route_was_complete_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its source may have sent frames already: it has all connections first."""
    async with connected_fleet(replace(DIRECT, connections=(2,))) as fleet:
        manager, established = fleet["b"].router._manager, list[Link]()

        def break_the_first(link: Link, event: Established) -> None:
            RouteManager.link_established(manager, link, event)
            established.append(link)
            if len(established) == 1:
                assert fleet["b"].route().links == [link]
                manager.link_lost(link, "cut by the test")

        monkeypatch.setattr(manager, "link_established", break_the_first)
        cut(fleet["b"])
        await until(lambda: established)
        assert len(fleet["b"].down) == 2
        await connected(fleet)
