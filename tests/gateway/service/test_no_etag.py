"""Objects without an ETag, as a server shows files that were laid into its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults import versitygw

from skyplane_gateway.common.objects import StoreSpec, is_time_pin
from skyplane_gateway.config import MIB
from skyplane_gateway.stores import open_store

PART = 5 * MIB
ROOMY = {"assembly_mib": 64}


@pytest.fixture
def folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, dict[str, Path]]]:
    """A server's address, and its buckets' folders."""
    root = tmp_path / "server"
    made = {name: root / name for name in ("source-bucket", "destination-bucket")}
    for folder in made.values():
        folder.mkdir(parents=True)
    try:
        with versitygw.running(root) as server:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
            yield server.url, made
    except versitygw.Unavailable as error:
        pytest.skip(str(error))


def test_a_file_laid_into_a_servers_folder_is_copied_and_replaced(
    folders: tuple[str, dict[str, Path]], fleet_of: Any, kit: Any
) -> None:
    url, folder = folders
    laid = {"empty": b"", "small": b"small", "parts": bytes(range(251)) * 44_000}
    source, destination = (StoreSpec("s3", name, url, "us-east-1") for name in folder)
    for key, body in laid.items():
        (folder["source-bucket"] / key).write_bytes(body)
    (folder["destination-bucket"] / "small").write_bytes(b"is replaced")
    store = open_store(source)
    store.put("beside", b"with an ETag")
    assert {row.key: is_time_pin(row.etag) for row in store.list("")} == {
        "beside": False,
        "empty": True,
        "parts": True,
        "small": True,
    }

    async def scenario() -> None:
        spec = kit.copy_spec(source, destination, chunk_bytes=PART, conflict="replace")
        async with fleet_of(kit.route(0, "a", "b"), **ROOMY) as fleet:
            status = await fleet.run(spec)
            assert (status["state"], status["error"]) == ("succeeded", None)
            assert (status["copied"], status["pinned_by_time"]) == (4, 3)
            assert kit.content(destination) == {**laid, "beside": b"with an ETag"}

    asyncio.run(scenario())
    store.close()
