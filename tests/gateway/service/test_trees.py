"""Several destinations: bytes cross a shared edge once, and each transfer ends by itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.service.fan_out import FAN, FanOut, routes_along
from tests.gateway.service.in_process_fleet import content, fill, memory_spec

OBJECTS = {f"object-{n:02}": bytes([n]) * (n * 1000) for n in range(40)} | {
    "large": bytes(range(256)) * 5000,
}
DATA_BYTES = sum(map(len, OBJECTS.values()))
CHUNK_BYTES = 64 << 10


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_shared_edge_carries_every_byte_once(fleet_of: Any, is_encrypted: bool) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*FAN) as fleet:
        fan = FanOut(fleet, source, is_encrypted=is_encrypted)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        statuses = await fan.ended()
        assert {sink: row["state"] for sink, row in statuses.items()} == dict.fromkeys(
            "bcd", "succeeded"
        )
        for sink, place in fan.destinations.items():
            assert content(place) == OBJECTS, sink
        assert DATA_BYTES <= fan.tree_bytes("a")["a", "r"] <= 1.02 * DATA_BYTES
        assert set(fan.tree_bytes("r")) == {("r", "b"), ("r", "c"), ("r", "d")}
        assert fan.route_bytes() == 0


async def test_a_sink_passes_on_what_it_writes(fleet_of: Any) -> None:
    source = memory_spec()
    fill(source, OBJECTS)
    async with fleet_of(*routes_along("ab", "abc", "abx")) as fleet:
        fan = FanOut(fleet, source)
        await fan.begin(chunk_bytes=CHUNK_BYTES)
        assert {row["state"] for row in (await fan.ended()).values()} == {"succeeded"}
        assert all(content(place) == OBJECTS for place in fan.destinations.values())
        assert fan.tree_bytes("a")["a", "b"] <= 1.02 * DATA_BYTES
