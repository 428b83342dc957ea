"""Paths of files are as long as the file system allows, in every way that an object travels."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from skyplane_gateway.common.errors import InvalidKey
from skyplane_gateway.common.objects import MIB, StoreSpec
from skyplane_gateway.stores import check_destination_key, open_store
from skyplane_gateway.stores.local.paths import MAX_PATH_BYTES, path_of

#: More than the key of an object may have in a cloud.
DEEP: Final = "/".join(["d" * 200] * 8)


def test_long_paths_travel_whole_together_and_in_parts(
    tmp_path: Path, fleet_of: Any, kit: Any
) -> None:
    source, destination = (StoreSpec("file", str(tmp_path / end)) for end in ("src", "dst"))
    bodies = {f"{DEEP}/{name}": b"small" for name in ("one", "two", "e" * 255)}
    bodies[f"{DEEP}/parts"] = os.urandom(2 * MIB + 1)
    for end in (source, destination):
        Path(end.bucket).mkdir()
    kit.fill(source, bodies)

    async def scenario() -> dict[str, Any]:
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB, whole_bytes=MIB)
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            return dict(await fleet.run(spec))

    status = asyncio.run(scenario())
    assert (status["state"], status["error"]) == ("succeeded", None)
    assert kit.content(destination) == bodies


def longest(name_bytes: int) -> str:
    """A key whose path, or that of its unfinished file, is the longest that can be."""
    unfinished = max(name_bytes, 55)
    left = MAX_PATH_BYTES - len("/") - len("/") - unfinished
    folders = ["d" * 200] * (left // 201)
    rest = left - len("/".join(folders)) - 1
    return "/".join([*folders, *(["r" * rest] if rest > 0 else []), "n" * name_bytes])


@pytest.mark.parametrize("name_bytes", [1, 55, 255])
def test_a_path_is_as_long_as_the_system_allows(name_bytes: int) -> None:
    key = longest(name_bytes)
    assert len(str(path_of(Path("/"), key)).encode()) <= MAX_PATH_BYTES
    check_destination_key("file", key, 1)
    with pytest.raises(InvalidKey, match=f"more than {MAX_PATH_BYTES:,}"):
        check_destination_key("file", "d" + key, 1)


@pytest.mark.parametrize("name_bytes", [1, 255])
def test_the_longest_path_is_written(tmp_path: Path, name_bytes: int) -> None:
    """As a whole, and in parts."""
    above = str(tmp_path).lstrip("/")
    key = longest(name_bytes)
    key = f"{above}/{key[len(above) + 1 :]}"
    with closing(open_store(StoreSpec("file", "/"))) as store:
        assert store.put(key, b"x").size_bytes == 1
        upload = store.create_upload(key)
        store.abort_upload(key, upload)
