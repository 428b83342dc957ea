"""Metadata that a copy loses is reported or refused; a content type is guessed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.memory_store import _buckets

from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.stores import GUESSED_TYPE, KEPT_TIME, open_store

CHUNK = 1 << 20
SIZES = {"large": 3 * CHUNK, "lone": CHUNK, "plain": 3, "small": 3}


def _source(kit: Any) -> StoreSpec:
    """All but `plain` have tags and a storage class of their own."""
    spec: StoreSpec = kit.memory_spec()
    kit.fill(spec, {key: bytes(size) for key, size in SIZES.items()})
    objects = _buckets[spec.bucket].objects
    for key in {*SIZES} - {"plain"}:
        info = replace(objects[key].info, not_carried=("tags", "storage-class"))
        objects[key] = replace(objects[key], info=info)
    return spec


async def test_lost_metadata_is_counted_and_reported(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = _source(kit), kit.memory_spec()
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
        status = await fleet.run(spec)
        assert (status["copied"], status["not_carried"]) == (4, 3)
        assert status["not_carried_by_name"] == {"storage-class": 3, "tags": 3}
        lead = fleet.service("a").leads.transfer(status["transfer_key"])
        lacking = {row["source"]: row.get("not_carried") for row in lead.report.page(0)["rows"]}
        both = ["storage-class", "tags"]
        assert lacking == {"large": both, "lone": both, "small": both, "plain": None}


async def test_a_strict_transfer_fails_objects_with_lost_metadata(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = _source(kit), kit.memory_spec()
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK, strict_metadata=True)
        status = await fleet.run(spec)
        assert (status["state"], status["copied"], status["failed"]) == ("failed", 1, 3)
        assert {row["code"] for row in status["failures"]} == {"metadata-not-carried"}
        for row in status["failures"]:
            assert row["source"] in row["reason"]
            assert "storage-class, tags" in row["reason"]
        assert kit.content(destination) == {"plain": bytes(3)}
        assert kit.uploads(destination) == []
        assert status["not_carried"] == 0


async def test_a_file_comes_with_the_type_of_its_name(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name, size in {"a.csv": 3, "b.html": 3 * CHUNK, "none": 3}.items():
        (tmp_path / "in" / name).write_bytes(bytes(size))

    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        destination = kit.memory_spec()
        source = StoreSpec("file", str(tmp_path / "in"), options=(GUESSED_TYPE,))
        status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=CHUNK))
        assert status["copied"] == 3
        store = open_store(destination)
        types = {}
        for name in ("a.csv", "b.html", "none"):
            attributes = store.head(name).attributes
            types[name] = attributes.content_type if attributes else None
        assert types == {"a.csv": "text/csv", "b.html": "text/html", "none": None}
        copied = StoreSpec("file", str(tmp_path))
        to_files = kit.copy_spec(source, copied, destination_prefix="out", chunk_bytes=CHUNK)
        assert (await fleet.run(to_files))["copied"] == 3


ALL_LOST = ["cache-control", "content-type", "user-metadata"]


def _described(kit: Any) -> StoreSpec:
    """Objects with headers and user metadata, and others with nothing that a file loses."""
    spec: StoreSpec = kit.memory_spec()
    store = open_store(spec)
    described = ObjectAttributes("text/html", cache_control="no-store", metadata=(("a", "b"),))
    usual = ObjectAttributes("application/octet-stream", metadata=(("mtime", "1700000000"),))
    for key, size in SIZES.items():
        store.put(f"d/{key}", bytes(size), attributes=described)
        store.put(f"u/{key}", bytes(size), attributes=usual)
    store.put("d/empty", b"", attributes=described)
    return spec


@pytest.mark.parametrize("tags", [(), (("tags", "keep"),)])
async def test_what_files_do_not_keep_is_counted_and_reported(
    fleet_of: Any, kit: Any, tmp_path: Path, tags: tuple[tuple[str, str], ...]
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source = replace(_described(kit), options=tags)
        status = await fleet.run(
            kit.copy_spec(source, StoreSpec("file", str(tmp_path)), chunk_bytes=CHUNK)
        )
        assert (status["copied"], status["not_carried"]) == (9, 5)
        assert status["not_carried_by_name"] == dict.fromkeys(ALL_LOST, 5)
        lead = fleet.service("a").leads.transfer(status["transfer_key"])
        lacking = {row["source"]: row.get("not_carried") for row in lead.report.page(0)["rows"]}
        assert lacking == {
            **{f"d/{key}": ALL_LOST for key in (*SIZES, "empty")},
            **{f"u/{key}": None for key in SIZES},
        }


async def test_a_time_that_no_file_can_have_is_lost(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source = kit.memory_spec()
        for key, size in SIZES.items():
            told = ObjectAttributes(metadata=(("mtime", "yesterday"),))
            open_store(source).put(key, bytes(size), attributes=told)
        target = StoreSpec("file", str(tmp_path))
        status = await fleet.run(kit.copy_spec(source, target, chunk_bytes=CHUNK))
        assert status["not_carried_by_name"] == {"user-metadata": len(SIZES)}


async def test_a_strict_transfer_fails_objects_that_a_file_would_reduce(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        destination = StoreSpec("file", str(tmp_path))
        spec = kit.copy_spec(_described(kit), destination, chunk_bytes=CHUNK, strict_metadata=True)
        status = await fleet.run(spec)
        assert (status["copied"], status["failed"], status["not_carried"]) == (4, 5, 0)
        assert sorted(kit.content(destination)) == [f"u/{key}" for key in sorted(SIZES)]


async def test_buckets_and_copies_of_files_lose_nothing(
    fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "a.html").write_bytes(b"abc")
    files = StoreSpec("file", str(tmp_path / "in"), options=(GUESSED_TYPE, KEPT_TIME))
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        for source, destination in (
            (_described(kit), kit.memory_spec()),
            (files, StoreSpec("file", str(tmp_path / "out"))),
        ):
            spec = kit.copy_spec(
                source, destination, chunk_bytes=CHUNK, destination_prefix="renamed"
            )
            status = await fleet.run(spec)
            assert status["copied"]
            assert status["not_carried"] == 0
