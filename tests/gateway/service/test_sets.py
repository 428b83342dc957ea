"""What a job sets replaces the headers of the source, in objects of every size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores import GUESSED_TYPE, open_store

CHUNK = 1 << 20
SIZES = {"large.csv": 3 * CHUNK, "whole.csv": CHUNK, "small.csv": 3, "empty.csv": 0}
SETS = ObjectAttributes(
    content_type="text/x-set", cache_control="no-store", metadata=(("owner", "me"),)
)


@pytest.mark.parametrize("is_file", [True, False])
async def test_copies_have_what_is_set(
    fleet_of: Any, kit: Any, tmp_path: Path, is_file: bool
) -> None:
    if is_file:
        for name, size in SIZES.items():
            (tmp_path / name).write_bytes(bytes(size))
        source = StoreSpec("file", str(tmp_path), options=(GUESSED_TYPE,))
    else:
        source = kit.memory_spec()
        given = ObjectAttributes(
            content_type="text/csv", content_language="en", metadata=(("owner", "you"), ("x", "y"))
        )
        for name, size in SIZES.items():
            open_store(source).put(name, bytes(size), attributes=given)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        destination = kit.memory_spec()
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK, sets=SETS)
        assert (await fleet.run(spec))["copied"] == len(SIZES)
    for name in SIZES:
        found = open_store(destination).head(name).attributes
        assert found is not None
        assert (found.content_type, found.cache_control) == ("text/x-set", "no-store")
        assert found.content_language == (None if is_file else "en")
        rows = dict(marked(found, None).metadata)
        rows.pop("mtime", None)
        assert rows == ({"owner": "me"} if is_file else {"owner": "me", "x": "y"})


@pytest.mark.parametrize(("text", "owner", "lost"), [("me", "me", None), ("René", None, 4)])
async def test_the_report_tells_of_what_is_set(
    fleet_of: Any, kit: Any, text: str, owner: str | None, lost: int | None
) -> None:
    """In objects of every size: what was replaced is not lost, and what does not fit is."""
    source = kit.memory_spec()
    destination = replace(kit.memory_spec(), options=(("non-ascii", "omit"),))
    given = ObjectAttributes(metadata=(("owner", "Zoë"),))
    for name, size in SIZES.items():
        open_store(source).put(name, bytes(size), attributes=given)
    sets = ObjectAttributes(metadata=(("owner", text),))
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK, sets=sets)
        status = await fleet.run(spec)
    assert status["not_carried_by_name"] == ({"user-metadata": lost} if lost else {})
    for name in SIZES:
        found = open_store(destination).head(name).attributes
        assert found is not None
        assert dict(found.metadata).get("owner") == owner
