"""Metadata that a copy loses, and what a job sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import (
    content,
    copy_spec,
    fill,
    memory_spec,
    uploads,
)
from tests.memory_store import _buckets

from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores import GUESSED_TYPE, KEPT_TIME, open_store

# Metadata that a copy loses is reported or refused; a content type is guessed.


CHUNK = 1 << 20
SIZES = {"large": 3 * CHUNK, "lone": CHUNK, "plain": 3, "small": 3}


def _source() -> StoreSpec:
    """All but `plain` have tags and a storage class of their own."""
    spec: StoreSpec = memory_spec()
    fill(spec, {key: bytes(size) for key, size in SIZES.items()})
    objects = _buckets[spec.bucket].objects
    for key in {*SIZES} - {"plain"}:
        info = replace(objects[key].info, not_carried=("tags", "storage-class"))
        objects[key] = replace(objects[key], info=info)
    return spec


BOTH = ["storage-class", "tags"]


@pytest.mark.parametrize("is_strict", [False, True])
async def test_lost_metadata_is_counted_and_reported_or_fails(
    fleet_of: Any, is_strict: bool
) -> None:
    source, destination = _source(), memory_spec()
    spec = copy_spec(source, destination, chunk_bytes=CHUNK, strict_metadata=is_strict)
    async with fleet_of() as fleet:
        status = await fleet.run(spec)
        lacking = {row["source"]: row.get("not_carried") for row in fleet.report(status)}
    if not is_strict:
        assert (status["copied"], status["not_carried"]) == (4, 3)
        assert status["not_carried_by_name"] == {"storage-class": 3, "tags": 3}
        assert lacking == {"large": BOTH, "lone": BOTH, "small": BOTH, "plain": None}
        return
    counts = [status[name] for name in ("copied", "failed", "not_carried")]
    assert (status["state"], counts) == ("failed", [1, 3, 0])
    for row in status["failures"]:
        assert row["code"] == "metadata-not-carried"
        assert row["source"] in row["reason"]
        assert "storage-class, tags" in row["reason"]
    assert content(destination) == {"plain": bytes(3)}
    assert uploads(destination) == []


async def test_a_file_comes_with_the_type_of_its_name(fleet_of: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, size in {"a.csv": 3, "b.html": 3 * CHUNK, "none": 3}.items():
        (tmp_path / "in" / name).write_bytes(bytes(size))

    async with fleet_of() as fleet:
        destination = memory_spec()
        source = StoreSpec("file", str(tmp_path / "in"), options=(GUESSED_TYPE,))
        status = await fleet.run(copy_spec(source, destination, chunk_bytes=CHUNK))
        assert status["copied"] == 3
        store = open_store(destination)
        types = {}
        for name in ("a.csv", "b.html", "none"):
            attributes = store.head(name).attributes
            types[name] = attributes.content_type if attributes else None
        assert types == {"a.csv": "text/csv", "b.html": "text/html", "none": None}
        copied = StoreSpec("file", str(tmp_path))
        to_files = copy_spec(source, copied, destination_prefix="out", chunk_bytes=CHUNK)
        assert (await fleet.run(to_files))["copied"] == 3


ALL_LOST = ["cache-control", "content-type", "user-metadata"]


def _described() -> StoreSpec:
    """Objects with headers and user metadata, and others with nothing that a file loses."""
    spec: StoreSpec = memory_spec()
    store = open_store(spec)
    described = ObjectAttributes("text/html", cache_control="no-store", metadata=(("a", "b"),))
    usual = ObjectAttributes("application/octet-stream", metadata=(("mtime", "1700000000"),))
    for key, size in SIZES.items():
        store.put(f"d/{key}", bytes(size), attributes=described)
        store.put(f"u/{key}", bytes(size), attributes=usual)
    store.put("d/empty", b"", attributes=described)
    return spec


@pytest.mark.parametrize("tags", [(), (("tags", "keep"),)])
@pytest.mark.parametrize("is_strict", [False, True])
async def test_what_files_do_not_keep_is_counted_and_reported_or_fails(
    fleet_of: Any, tmp_path: Path, tags: tuple[tuple[str, str], ...], is_strict: bool
) -> None:
    source, destination = replace(_described(), options=tags), StoreSpec("file", str(tmp_path))
    spec = copy_spec(source, destination, chunk_bytes=CHUNK, strict_metadata=is_strict)
    async with fleet_of() as fleet:
        status = await fleet.run(spec)
        lacking = {row["source"]: row.get("not_carried") for row in fleet.report(status)}
    counts = [status[name] for name in ("copied", "failed", "not_carried")]
    if is_strict:
        assert counts == [4, 5, 0]
        assert sorted(content(destination)) == [f"u/{key}" for key in sorted(SIZES)]
        return
    assert counts == [9, 0, 5]
    assert status["not_carried_by_name"] == dict.fromkeys(ALL_LOST, 5)
    reduced = {f"d/{key}": ALL_LOST for key in (*SIZES, "empty")}
    assert lacking == {**reduced, **{f"u/{key}": None for key in SIZES}}


async def test_a_time_that_no_file_can_have_is_lost(fleet_of: Any, tmp_path: Path) -> None:
    async with fleet_of() as fleet:
        source = memory_spec()
        for key, size in SIZES.items():
            told = ObjectAttributes(metadata=(("mtime", "yesterday"),))
            open_store(source).put(key, bytes(size), attributes=told)
        target = StoreSpec("file", str(tmp_path))
        status = await fleet.run(copy_spec(source, target, chunk_bytes=CHUNK))
        assert status["not_carried_by_name"] == {"user-metadata": len(SIZES)}


async def test_buckets_and_copies_of_files_lose_nothing(fleet_of: Any, tmp_path: Path) -> None:
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "a.html").write_bytes(b"abc")
    files = StoreSpec("file", str(tmp_path / "in"), options=(GUESSED_TYPE, KEPT_TIME))
    async with fleet_of() as fleet:
        for source, destination in (
            (_described(), memory_spec()),
            (files, StoreSpec("file", str(tmp_path / "out"))),
        ):
            spec = copy_spec(source, destination, chunk_bytes=CHUNK, destination_prefix="renamed")
            status = await fleet.run(spec)
            assert status["copied"]
            assert status["not_carried"] == 0


# What a job sets replaces the headers of the source, in objects of every size.


SET_SIZES = {"large.csv": 3 * CHUNK, "whole.csv": CHUNK, "small.csv": 3, "empty.csv": 0}
SETS = ObjectAttributes(
    content_type="text/x-set", cache_control="no-store", metadata=(("owner", "me"),)
)


@pytest.mark.parametrize("is_file", [True, False])
async def test_copies_have_what_is_set(fleet_of: Any, tmp_path: Path, is_file: bool) -> None:
    if is_file:
        for name, size in SET_SIZES.items():
            (tmp_path / name).write_bytes(bytes(size))
        source = StoreSpec("file", str(tmp_path), options=(GUESSED_TYPE,))
    else:
        source = memory_spec()
        given = ObjectAttributes(
            content_type="text/csv", content_language="en", metadata=(("owner", "you"), ("x", "y"))
        )
        for name, size in SET_SIZES.items():
            open_store(source).put(name, bytes(size), attributes=given)
    async with fleet_of() as fleet:
        destination = memory_spec()
        spec = copy_spec(source, destination, chunk_bytes=CHUNK, sets=SETS)
        assert (await fleet.run(spec))["copied"] == len(SET_SIZES)
    for name in SET_SIZES:
        found = open_store(destination).head(name).attributes
        assert found is not None
        assert (found.content_type, found.cache_control) == ("text/x-set", "no-store")
        assert found.content_language == (None if is_file else "en")
        rows = dict(marked(found, None).metadata)
        rows.pop("mtime", None)
        assert rows == ({"owner": "me"} if is_file else {"owner": "me", "x": "y"})


@pytest.mark.parametrize(("text", "owner", "lost"), [("me", "me", None), ("René", None, 4)])
async def test_the_report_tells_of_what_is_set(
    fleet_of: Any, text: str, owner: str | None, lost: int | None
) -> None:
    """In objects of every size: what was replaced is not lost, and what does not fit is."""
    source = memory_spec()
    destination = replace(memory_spec(), options=(("non-ascii", "omit"),))
    given = ObjectAttributes(metadata=(("owner", "Zoë"),))
    for name, size in SET_SIZES.items():
        open_store(source).put(name, bytes(size), attributes=given)
    sets = ObjectAttributes(metadata=(("owner", text),))
    async with fleet_of() as fleet:
        spec = copy_spec(source, destination, chunk_bytes=CHUNK, sets=sets)
        status = await fleet.run(spec)
    assert status["not_carried_by_name"] == ({"user-metadata": lost} if lost else {})
    for name in SET_SIZES:
        found = open_store(destination).head(name).attributes
        assert found is not None
        assert dict(found.metadata).get("owner") == owner
