"""Objects whose keys the destination cannot hold: failed, skipped, or copied under another key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores.key_escape import QUOTE, unescape_name

CHUNK = 1 << 20
CONTENT = {
    "a": b"1",
    "b//c": b"2",
    "b/./large": bytes(3 * CHUNK),
    f"it{QUOTE}s": b"3",
    "z": b"4",
    "z//_SUCCESS": b"",
}


def files_below(folder: Path) -> dict[str, bytes]:
    """Name -> content, without journals."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".skyplane" not in path.parts
    }


@pytest.mark.parametrize(
    ("rule", "state", "copied"), [("fail", "failed", 3), ("skip", "succeeded", 3)]
)
async def test_illegal_keys_fail_or_are_skipped(
    fleet_of: Any, kit: Any, tmp_path: Path, rule: str, state: str, copied: int
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        (tmp_path / "out").mkdir()
        source, files = kit.memory_spec(), StoreSpec("file", str(tmp_path / "out"))
        kit.fill(source, CONTENT)
        spec = kit.copy_spec(source, files, chunk_bytes=CHUNK, on_illegal_key=rule)
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == (state, copied)
        assert {row["code"] for row in status["failures"]} <= {"invalid-key"}
        assert set(files_below(tmp_path / "out")) == {"a", f"it{QUOTE}s", "z"}


async def test_escaped_keys_are_copied_once_and_can_be_read_back(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        (tmp_path / "out").mkdir()
        source, files = kit.memory_spec(), StoreSpec("file", str(tmp_path / "out"))
        kit.fill(source, CONTENT)
        spec = kit.copy_spec(
            source,
            files,
            chunk_bytes=CHUNK,
            on_illegal_key="escape",
            conflict="replace-if-different",
        )
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == ("succeeded", len(CONTENT))
        found = files_below(tmp_path / "out")
        assert {unescape_name(name): body for name, body in found.items()} == CONTENT
        status = await fleet.run(spec)
        assert (status["copied"], status["skipped"]) == (0, len(CONTENT))
