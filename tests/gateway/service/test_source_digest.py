"""The lead's digest of a source, which is the data version of the copy."""

from __future__ import annotations

from typing import Any

from skyplane_gateway.selection import SourceDigest
from skyplane_gateway.stores import open_store


async def test_a_second_run_that_copies_nothing_has_the_same_digest(
    fleet_of: Any, kit: Any
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"in/x": b"1", "in/_SUCCESS": b"", "in/left-out": b"2"})
        spec = kit.copy_spec(
            source, destination, source_prefix="in", exclude=("left*",), conflict="skip"
        )
        first, second = await fleet.run(spec), await fleet.run(spec)
        assert (first["copied"], second["copied"], second["skipped"]) == (2, 0, 2)
        # In the order of the listing, although markers are copied last.
        expected = SourceDigest()
        for row in open_store(source).list("in/"):
            if row.key != "in/left-out":
                expected.add(row)
        assert first["source_digest"] == second["source_digest"] == expected.text
        kit.fill(source, {"in/x": b"3"})
        assert (await fleet.run(spec))["source_digest"] != expected.text


async def test_a_listing_that_fails_gives_no_digest(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        spec = kit.copy_spec(
            kit.memory_spec(), kit.memory_spec(), source_prefix="gone", recursive=False
        )
        status = await fleet.run(spec)
        assert (status["state"], status["source_digest"]) == ("failed", "")
