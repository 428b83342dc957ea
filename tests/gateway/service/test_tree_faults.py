"""What goes wrong on a tree concerns one destination; the others end as they would alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.service.fan_out import FAN, FanOut, routes_along
from tests.gateway.service.in_process_fleet import content, fill, memory_spec
from tests.gateway.service.test_faults import vanish

from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER

OBJECTS = {f"object-{n:02}": bytes([n]) * 70_000 for n in range(60)}
DATA_BYTES = sum(map(len, OBJECTS.values()))
CHUNK_BYTES = 64 << 10
SINKS = "bcd"


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def is_encrypted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyplane_gateway.source.join.JOIN_WAIT_S", 1.0)


class Slow:
    """The writes of one destination wait until it is opened."""

    def __init__(self, wrap_stores: Callable[..., None]) -> None:
        self.bucket = ""
        self.opened = threading.Event()
        self.waiting = 0
        wrap_stores(put=self._write, put_part=self._write)

    def _write(self, original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        bucket = original.__self__.spec.bucket
        if bucket == self.bucket and JOURNAL_FOLDER not in key:
            self.waiting += 1
            self.opened.wait(60)
        return original(key, *arguments, **more)


async def test_a_sink_that_is_lost_does_not_stop_the_others(
    fleet_of: Any, is_encrypted: bool
) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    deadlines = {"ack_deadline_s": 1.0, "stall_deadline_s": 4.0}
    async with fleet_of(*FAN, over_tls=True, **deadlines) as fleet:
        fan = FanOut(fleet, source, is_encrypted=is_encrypted)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        lead = fleet.service("a").leads.transfer(fan.keys["b"])
        await fleet.until(lambda: lead.status()["copied"] > 5)
        await vanish(fleet, "d")
        statuses = await fan.ended()
        assert [statuses[sink]["state"] for sink in SINKS] == ["succeeded", "succeeded", "failed"]
        for sink in "bc":
            assert content(fan.destinations[sink]) == OBJECTS
        assert content(fan.destinations["d"]).items() <= OBJECTS.items()


async def test_a_lost_transfer_resumes_by_itself(fleet_of: Any, is_encrypted: bool) -> None:
    """Its next epoch takes what is missing, while the tree has nobody else."""
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source, is_encrypted=is_encrypted)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        lead = fleet.service("a").leads.transfer(fan.keys["c"])
        await fleet.until(lambda: lead.status()["copied"] > 5)
        await asyncio.to_thread(fleet.client("a").stop, fan.keys["c"], "told to")
        statuses = await fan.ended()
        assert [statuses[sink]["state"] for sink in SINKS] == ["succeeded", "failed", "succeeded"]
        await fan.begin("c", epoch=2, chunk_bytes=CHUNK_BYTES)
        assert (await fleet.ended(fan.keys["c"]))["state"] == "succeeded"
        assert all(content(place) == OBJECTS for place in fan.destinations.values())


async def test_an_older_epoch_is_refused_by_its_sink_alone(fleet_of: Any) -> None:
    """A newer lead has attached one sink; the chunks that it shares go on to the others."""
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        sides = fleet.service("b").endpoints
        sides.destinations[fan.keys["b"]].epoch = 2
        statuses = await fan.ended()
        assert statuses["b"]["error"]["code"] == "stale-epoch"
        assert [statuses[sink]["state"] for sink in "cd"] == ["succeeded", "succeeded"]
        assert content(fan.destinations["c"]) == content(fan.destinations["d"]) == OBJECTS


async def test_a_slow_destination_falls_behind_and_is_served_alone(
    fleet_of: Any, wrap_stores: Callable[..., None]
) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    slow = Slow(wrap_stores)
    async with fleet_of(*FAN, assembly_mib=1) as fleet:
        fan = FanOut(fleet, source)
        slow.bucket = fan.destinations["d"].bucket
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        for sink in "bc":
            assert (await fleet.ended(fan.keys[sink]))["state"] == "succeeded"
        assert slow.waiting > 0
        assert fleet.service("a").leads.transfer(fan.keys["d"]).status()["state"] == "running"
        slow.opened.set()
        assert (await fleet.ended(fan.keys["d"]))["state"] == "succeeded"
        assert all(content(place) == OBJECTS for place in fan.destinations.values())
        # Three transfers that share nothing send it three times.
        assert 0 < fan.route_bytes() < 1.5 * DATA_BYTES


async def test_a_branch_that_breaks_is_built_again_while_the_others_go_on(fleet_of: Any) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        lead = fleet.service("a").leads.transfer(fan.keys["b"])
        await fleet.until(lambda: lead.status()["copied"] > 5)
        branch = fleet.service("r").router._manager.find(9, "c")
        branch.links[0].abort("broken by the test")
        assert {row["state"] for row in (await fan.ended()).values()} == {"succeeded"}
        assert all(content(place) == OBJECTS for place in fan.destinations.values())


LARGE = {f"large-{number}": bytes([number]) * (2 << 20) for number in range(8)}
#: So that chunks are half received for most of the time.
BYTES_PER_S = 16e6
WHOLE = 2 << 20


@pytest.mark.parametrize(
    ("paths", "node", "head"),
    [
        (("ab", "abc", "abx"), "b", "c"),
        (("ab", "abc", "abx"), "a", "b"),
        (("arb", "arc", "ard"), "a", "r"),
        (("arb", "arc", "ard"), "r", "c"),
    ],
)
async def test_a_hop_that_breaks_leaves_no_half_chunk_at_any_sink(
    fleet_of: Any, paths: tuple[str, ...], node: str, head: str
) -> None:
    source = memory_spec()
    fill(source, LARGE)
    async with fleet_of(*routes_along(*paths)) as fleet:
        fan = FanOut(fleet, source, bytes_per_s=BYTES_PER_S)
        await fan.begin(chunk_bytes=WHOLE)
        await fleet.until(lambda: fan.has_half_a_chunk("b"))
        fleet.service(node).router._manager.find(9, head).links[0].abort("broken by the test")
        assert {row["state"] for row in (await fan.ended()).values()} == {"succeeded"}
        assert all(content(place) == LARGE for place in fan.destinations.values())
        await fan.nothing_is_held()


@pytest.mark.parametrize("ends", SINKS)
async def test_a_destination_that_is_cancelled_leaves_no_half_chunk_at_the_others(
    fleet_of: Any, ends: str
) -> None:
    """Its side of the source reads some of the chunks that they share."""
    source = memory_spec()
    fill(source, LARGE)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source, bytes_per_s=BYTES_PER_S)
        await fan.begin(chunk_bytes=WHOLE)
        await fleet.until(lambda: fan.has_half_a_chunk("b"))
        for node in ("a", ends):
            await asyncio.to_thread(fleet.client(node).cancel, fan.keys[ends])
        others = [sink for sink in SINKS if sink != ends]
        for sink in others:
            assert (await fleet.ended(fan.keys[sink]))["state"] == "succeeded"
            assert content(fan.destinations[sink]) == LARGE
        await fan.nothing_is_held()


async def test_a_relay_that_is_lost_ends_those_behind_it(fleet_of: Any) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    deadlines = {"ack_deadline_s": 1.0, "stall_deadline_s": 4.0}
    paths = routes_along("ab", "arc", "ard")
    async with fleet_of(*paths, over_tls=True, **deadlines) as fleet:
        fan = FanOut(fleet, source)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        lead = fleet.service("a").leads.transfer(fan.keys["b"])
        await fleet.until(lambda: lead.status()["copied"] > 5)
        await vanish(fleet, "r")
        statuses = await fan.ended()
        assert [statuses[sink]["state"] for sink in SINKS] == ["succeeded", "failed", "failed"]
        assert content(fan.destinations["b"]) == OBJECTS


async def test_a_destination_that_has_some_objects_gets_the_others(fleet_of: Any) -> None:
    """Its orders differ from those of the others, so they wait for each other only for a while."""
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source)
        half = {key: body for number, (key, body) in enumerate(OBJECTS.items()) if number % 2}
        fill(fan.destinations["c"], half)
        await fan.begin(chunk_bytes=CHUNK_BYTES, conflict="skip")
        assert {row["state"] for row in (await fan.ended()).values()} == {"succeeded"}
        assert all(content(place) == OBJECTS for place in fan.destinations.values())
