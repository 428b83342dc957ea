"""Lanes that break are built again by themselves, and nothing old comes through them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

import pytest
from tests.gateway.transport.lab import (
    Gateway,
    apply,
    connected,
    cut,
    dial,
    fleet_of,
    frame,
    revive,
    run_jumping,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.config import Route
from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.transport.incarnation import Incarnation

RELAYED = Route(0, ("a", "r", "b"), (2, 2), 1.0)


@pytest.mark.parametrize("dialled_by_downstream", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("broken_at", ["a", "r", "b"])
def test_a_broken_route_comes_back_by_itself(
    broken_at: str, dialled_by_downstream: tuple[int, ...]
) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            apply(
                fleet,
                topology(fleet, Route(0, ("a", "r", "b"), (3, 2), 1.0, dialled_by_downstream)),
            )
            await connected(fleet)
            for breaks in range(3):
                cut(fleet[broken_at])
                await until(
                    lambda: all(len(gateway.down) > breaks for gateway in fleet.values())  # noqa: B023
                )
                await connected(fleet)
                await there_and_back(fleet["a"], fleet["b"])
            for gateway in fleet.values():
                # One more than it went down, since it came up at the beginning.
                assert len(gateway.up) == len(gateway.down) + 1

    run_jumping(scenario())


def test_what_is_sent_while_a_route_is_down_fails_at_once() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (2,), 1.0)))
            await connected(fleet)
            fleet["b"].crash()
            await until(lambda: fleet["a"].down)
            with pytest.raises(GatewayLost, match="a -> b"):
                await fleet["a"].routes.send_frame(frame())
            with pytest.raises(GatewayLost, match="no route 7"):
                await fleet["a"].routes.send_frame(frame(7))

    run_jumping(scenario())


def test_a_sender_that_waits_does_not_go_on_over_the_new_connections() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)))
            await connected(fleet)
            (link,) = fleet["a"].routes._lanes[0].downstream
            link.is_ready = False
            waiting = asyncio.create_task(fleet["a"].routes.send_frame(frame()))
            await asyncio.sleep(0)
            link.abort("cut by the test")
            with pytest.raises(GatewayLost):
                await waiting
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])
            assert len(fleet["b"].frames) == 1

    run_jumping(scenario())


@pytest.mark.parametrize("dialled_by_downstream", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("killed", ["a", "r", "b"])
def test_a_killed_gateway_is_dialled_until_it_is_back(
    killed: str, dialled_by_downstream: tuple[int, ...]
) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            route = Route(0, ("a", "r", "b"), (2, 2), 1.0, dialled_by_downstream)
            wanted = topology(fleet, route)
            apply(fleet, wanted)
            await connected(fleet)
            fleet[killed].crash()
            alive = [gateway for node, gateway in fleet.items() if node != killed]
            await until(lambda: all(gateway.down for gateway in alive))
            # Longer than anybody dialled before a route could come back.
            await asyncio.sleep(3600)
            await revive(fleet, killed, wanted)
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])

    run_jumping(scenario())


def test_the_source_is_let_in_only_when_all_further_down_stands() -> None:
    """Or else it would send into a path that ends at the relay."""

    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(fleet, RELAYED)
            apply(fleet, wanted)
            await connected(fleet)
            fleet["b"].crash()
            await until(lambda: fleet["a"].down)
            ups = len(fleet["a"].up)
            await asyncio.sleep(300)
            assert len(fleet["a"].up) == ups
            assert len(fleet["a"].down) == 1
            # Nor do connections pile up that wait to be let in.
            assert len(fleet["r"].routes._builder._held) <= 2
            await revive(fleet, "b", wanted)
            await connected(fleet)

    run_jumping(scenario())


def test_a_fleet_that_is_ending_is_not_dialled_any_more() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            apply(fleet, topology(fleet, RELAYED))
            await connected(fleet)
            fleet["b"].end()
            await until(lambda: fleet["a"].down)
            for node in ("a", "r"):
                lane = fleet[node].routes._lanes[0]
                assert lane.is_ended
                assert not lane.dials
            assert "b is ending" in fleet["a"].routes.reason_down(0)

    run_jumping(scenario())


def test_a_route_that_ended_in_order_begins_anew_with_its_topology() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "r", "b") as fleet:
            wanted = topology(fleet, RELAYED)
            apply(fleet, wanted)
            await connected(fleet)
            fleet["r"].end()
            await until(lambda: fleet["a"].down and fleet["b"].down)
            await revive(fleet, "r", wanted)
            apply(fleet, wanted)
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])

    run_jumping(scenario())


async def _known(gateway: Gateway) -> Incarnation:
    """The incarnation of the connections that `a` has to this gateway."""
    above = gateway.routes._lanes[0].above
    assert above is not None
    assert above.incarnation is not None
    return above.incarnation


def _random(count: int) -> bytes:
    return bytes(count)


def test_a_connection_of_an_earlier_incarnation_is_closed_alone() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (2,), 1.0)))
            await connected(fleet)
            first = await _known(fleet["b"])
            cut(fleet["b"])
            await until(lambda: fleet["b"].down)
            # While nothing stands ...
            reason = await dial(fleet["b"], "a", 0, nonce=first.nonce(_random))
            assert "connections that are gone" in reason
            await connected(fleet)
            # ... and beside those that do, also of a process that was replaced.
            downs = len(fleet["b"].down)
            for old in (first, Incarnation(first.started - 1, first.count + 9)):
                reason = await dial(fleet["b"], "a", 0, nonce=old.nonce(_random))
                assert "connections that are gone" in reason
            assert len(fleet["b"].down) == downs
            await there_and_back(fleet["a"], fleet["b"])

    run_jumping(scenario())


def test_a_later_incarnation_ends_the_one_that_stands() -> None:
    """Its dialer has lost the old connections; that they are gone may be heard later."""

    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (2,), 1.0)))
            await connected(fleet)
            known = await _known(fleet["b"])
            later = Incarnation(known.started + 1, 1)
            stranger = asyncio.create_task(dial(fleet["b"], "a", 0, nonce=later.nonce(_random)))
            await until(lambda: fleet["b"].down)
            assert "anew" in fleet["b"].down[0][1]
            assert len(fleet["b"].routes._lanes[0].upstream) == 1
            stranger.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stranger

    run_jumping(scenario())


def test_frames_and_receipts_of_old_connections_are_dropped() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)))
            await connected(fleet)
            (old,) = fleet["b"].routes._lanes[0].upstream
            cut(fleet["b"])
            await until(lambda: fleet["a"].down and fleet["b"].down)
            await connected(fleet)
            late = frame()
            fleet["b"].routes.link_frame(old, late.header, memoryview(b""))
            assert fleet["b"].frames == []

    run_jumping(scenario())


def test_hours_of_flapping_cost_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b") as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)))
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            for breaks in itertools.count(1):
                await connected(fleet)
                if loop.time() - began_s > 3600:
                    break
                await asyncio.sleep(10)
                cut(fleet["a"])
                await until(
                    lambda: all(len(fleet[node].down) >= breaks for node in "ab")  # noqa: B023
                )
            assert len(fleet["a"].down) > 300

    caplog.set_level(logging.INFO)
    run_jumping(scenario())
    lines = [record for record in caplog.records if record.name.startswith("skyplane_gateway")]
    # Both gateways, down and up again each.
    assert 4 <= len(lines) <= 60


def test_a_peer_that_stops_reading_breaks_the_route() -> None:
    async def scenario() -> None:
        async with fleet_of("a", "b", write_timeout_s=30.0) as fleet:
            apply(fleet, topology(fleet, Route(0, ("a", "b"), (1,), 1.0)))
            await connected(fleet)
            (link,) = fleet["b"].routes._lanes[0].upstream
            link.pause_reading()
            big = frame(payload=bytes(1 << 19))

            async def flood() -> None:
                while True:
                    await fleet["a"].routes.send_frame(big)

            with pytest.raises(GatewayLost, match="took nothing for 30 s"):
                await flood()
            # The peer is there after all.
            await connected(fleet)
            await there_and_back(fleet["a"], fleet["b"])

    run_jumping(scenario())
