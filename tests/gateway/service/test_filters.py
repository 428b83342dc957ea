"""The lead applies filters while it lists, and reports listed keys that are not there."""

from __future__ import annotations

from typing import Any

from skyplane_gateway.common.object_filter import ObjectFilter


async def test_the_lead_applies_list_and_sizes(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1", "b": bytes(2000), "c": bytes(3000), "d": bytes(2000)})
        chosen = ObjectFilter(("a", "b", "c"), min_size="1K", max_size="2K")
        status = await fleet.run(kit.copy_spec(source, destination, filter=chosen))
        assert (status["state"], status["objects"], status["copied"]) == ("succeeded", 1, 1)
        assert set(kit.content(destination)) == {"b"}


async def test_a_listed_key_that_is_not_there_fails_alone(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1", "c": b"3", "_SUCCESS": b""})
        chosen = ObjectFilter(("_SUCCESS", "a", "b", "c"))
        status = await fleet.run(kit.copy_spec(source, destination, filter=chosen))
        assert (status["state"], status["copied"], status["failed"]) == ("failed", 2, 2)
        first, announcer = status["failures"]
        assert (first["destination"], first["code"]) == ("b", "not-found")
        assert announcer["destination"] == "_SUCCESS"
        assert set(kit.content(destination)) == {"a", "c"}
