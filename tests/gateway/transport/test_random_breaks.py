"""Random breaks of a route: both ends agree in the end, and no frame arrives twice."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import HealthCheck, given, settings, strategies as st
from tests.gateway.transport.lab import (
    Fleet,
    apply,
    connected,
    fleet_of,
    frame,
    on_jumping_loop,
    revive,
    there_and_back,
    topology,
    until,
)

from skyplane_gateway.common.errors import GatewayLost
from skyplane_gateway.config import Route

NODES = ("a", "r", "b")
node = st.sampled_from(NODES)

#: Kind, gateway, and connection or count.
events = st.one_of(
    st.tuples(st.just("cut"), node, st.integers(0, 3)),
    st.tuples(st.just("cut all"), node, st.just(0)),
    st.tuples(st.just("kill"), node, st.just(0)),
    st.tuples(st.just("apply again"), node, st.just(0)),
    st.tuples(st.just("send"), st.just("a"), st.integers(1, 5)),
    # Hundredths of a second: from a part of a handshake to the longest pause.
    st.tuples(st.just("wait"), st.just("a"), st.sampled_from([0, 1, 3, 10, 100, 1100])),
)


class Scenario:
    """Runs events on a fleet of one route."""

    def __init__(self, fleet: Fleet, route: Route) -> None:
        self.fleet = fleet
        self.wanted = topology(fleet, route)
        self.arrived: Counter[int] = Counter()

    async def event(self, kind: str, at: str, count: int) -> None:
        links = self.fleet[at].route().links
        if kind == "cut" and links:
            links[count % len(links)].abort("cut by the test")
        elif kind == "cut all":
            for link in links:
                link.abort("cut by the test")
        elif kind == "kill":
            self.collect()
            self.fleet[at].crash()
            await asyncio.sleep(0)
            await revive(self.fleet, at, self.wanted)
        elif kind == "apply again":
            apply(self.fleet, self.wanted, at)
        elif kind == "send":
            await self.send(count)
        elif kind == "wait":
            await asyncio.sleep(count / 100)

    async def send(self, count: int) -> None:
        for _ in range(count):
            try:
                async with asyncio.timeout(1.0):
                    await self.fleet["a"].router.send_frame(frame())
            except (GatewayLost, TimeoutError):
                return

    def collect(self) -> None:
        self.arrived.update(header.chunk_id.chunk for header in self.fleet["b"].frames)
        self.fleet["b"].frames.clear()


def connections(fleet: Fleet, upper: str, lower: str) -> tuple[set[object], set[object]]:
    """The connections of a hop, as each of its gateways sees them."""

    def ends(node: str, *, is_below: bool) -> set[object]:
        route = fleet[node].route()
        found: set[object] = set()
        for link in route.downstream_links if is_below else route.upstream_links:
            assert link._transport is not None
            pair = (
                link._transport.get_extra_info("sockname"),
                link._transport.get_extra_info("peername"),
            )
            found.add(frozenset(pair))
        return found

    return ends(upper, is_below=True), ends(lower, is_below=False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    steps=st.lists(events, max_size=14),
    dialed_by_downstream=st.sampled_from([(), (0,), (1,), (0, 1)]),
)
@on_jumping_loop
async def test_both_ends_agree_and_no_frame_comes_twice(
    steps: list[tuple[str, str, int]], dialed_by_downstream: tuple[int, ...]
) -> None:
    async with fleet_of(*NODES) as fleet:
        scenario = Scenario(fleet, Route(0, NODES, (2, 2), 1.0, dialed_by_downstream))
        apply(fleet, scenario.wanted)
        await connected(fleet)
        for step in steps:
            await scenario.event(*step)
        # Half-open connections and late GOODBYEs end.
        await asyncio.sleep(60)
        await connected(fleet)
        await until(lambda: all(not g.unanswered for g in fleet.values()))
        for upper, lower in (("a", "r"), ("r", "b")):
            mine, theirs = connections(fleet, upper, lower)
            assert mine == theirs
            assert len(mine) == 2
        for gateway in fleet.values():
            # Down and up alternate; a process that starts with a broken route begins with down.
            turns = zip(gateway.news, gateway.news[1:], strict=False)
            assert all(before != after for before, after in turns)
            assert gateway.news[-1] == "up"
            assert not gateway.route().dials
        await there_and_back(fleet["a"], fleet["b"])
        scenario.collect()
        assert set(scenario.arrived.values()) == {1}
