"""What a source has and no copy takes along: told, and no harm to the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from skyplane_gateway.common.objects import StoreSpec


async def test_journals_of_others_are_left_out_and_counted(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        reserved = {f"in/sub/.skyplane/jobs/ab/{number}": b"1" for number in (1, 2)}
        kit.fill(source, {"in/x": b"1", **reserved})
        spec = kit.copy_spec(source, destination, source_prefix="in")
        status = await fleet.run(spec)
        assert (status["state"], status["objects"], status["copied"]) == ("succeeded", 1, 1)
        assert status["reserved"] == 2
        assert kit.content(destination) == {"x": b"1"}


async def test_a_name_that_no_store_can_hold_is_left_out_by_a_filter(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_bytes(b"1")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "loop")
    (tmp_path / "in" / os.fsdecode(b"bad-\xff")).write_bytes(b"")

    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = StoreSpec("file", str(tmp_path)), kit.memory_spec()
        spec = kit.copy_spec(source, destination, source_prefix="in")
        status = await fleet.run(spec)
        assert status["state"] == "failed"
        assert "not UTF-8" in status["error"]["message"]
        spec = kit.copy_spec(source, destination, source_prefix="in", exclude=("bad-?",))
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == ("succeeded", 1)


async def test_patterns_without_a_match_are_told(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"in/x": b"1", "in/tmp/y": b"1"})
        more = {"exclude": ("tmp/", "tmp"), "include": ("x", "*.csv"), "publish_last": ("/x", "z")}
        spec = kit.copy_spec(source, destination, source_prefix="in", **more)
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == ("succeeded", 1)
        told = ["include '*.csv'", "exclude 'tmp'", "publish_last 'z'"]
        assert list(status["unmatched_patterns"]) == told
