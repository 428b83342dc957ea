"""What a transfer copies, leaves out, fails and tells of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.faults import versitygw
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    fill,
    journals,
    memory_spec,
    uploads,
)
from tests.memory_store import _buckets

from skyplane_gateway.common.errors import InvalidKey
from skyplane_gateway.common.object_filter import ObjectFilter
from skyplane_gateway.common.objects import StoreSpec, is_time_pin
from skyplane_gateway.config import MIB
from skyplane_gateway.selection.source_digest import SourceDigest
from skyplane_gateway.stores import check_destination_key, open_store
from skyplane_gateway.stores.key_escape import QUOTE, unescape_name
from skyplane_gateway.stores.local.paths import MAX_PATH_BYTES, path_of

# An object that appears at the destination while it is being copied is somebody else's.


BODIES = {"parts": bytes(3 * MIB), "small": b"small", "whole": b"w" * MIB}
THEIRS = b"somebody else's"


async def test_a_transfer_that_allows_failures_leaves_no_journal(fleet_of: Any) -> None:
    """It counts as a success, so the same task run again copies again."""

    source, destination = buckets(BODIES)
    fill(destination, {"small": THEIRS})
    spec = copy_spec(source, destination, chunk_bytes=MIB, conflict="fail", allow_failed=True)
    async with fleet_of() as fleet:
        transfer = "25" * 16
        await fleet.begin(transfer, spec)
        status = await fleet.ended(transfer)
        await fleet.heard(transfer, spec)
    assert (status["state"], status["error"]["code"]) == ("failed", "objects-failed")
    assert (status["copied"], status["failed"], status["open_uploads"]) == (2, 1, [])
    assert (uploads(destination), journals(destination)) == ([], [])


# Objects that the source has archived: failed or skipped before a byte moves, or read.


ADVICE = "it is archived: restore it"


def source_of() -> StoreSpec:
    """`cold` and `frozen/large` are archived."""
    spec: StoreSpec = memory_spec()
    fill(spec, {"cold": b"1", "frozen/large": bytes(3 << 20), "warm": b"2"})
    objects = _buckets[spec.bucket].objects
    for key in ("cold", "frozen/large"):
        info = replace(objects[key].info, archived=ADVICE)
        objects[key] = replace(objects[key], info=info)
    return spec


@pytest.mark.parametrize(
    ("rule", "state", "counts"),
    [
        ("fail", "failed", (1, 0, 2, 0)),
        ("skip", "succeeded", (1, 2, 0, 2)),
        ("read", "succeeded", (3, 0, 0, 0)),
    ],
)
async def test_archived_objects(
    fleet_of: Any, rule: str, state: str, counts: tuple[int, ...]
) -> None:
    async with fleet_of() as fleet:
        source, destination = source_of(), memory_spec()
        spec = copy_spec(source, destination, chunk_bytes=1 << 20, on_archived_object=rule)
        status = await fleet.run(spec)
        names = ("copied", "skipped", "failed", "archived")
        assert (status["state"], tuple(status[name] for name in names)) == (state, counts)
        reason = f"{ADVICE} (rule for archived objects: {rule})"
        assert {row["code"] for row in status["failures"]} == (
            {"not-restored"} if counts[2] else set()
        )
        reasons = {row.get("reason") for row in fleet.report(status)}
        assert reasons == ({None} if rule == "read" else {None, reason})
        assert ("cold" in content(destination)) == (rule == "read")


# The lead applies filters while it lists, and reports listed keys that are not there.


async def test_a_listed_key_that_is_not_there_fails_alone(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        source, destination = buckets({"a": b"1", "c": b"3", "_SUCCESS": b"", "large": bytes(2000)})
        chosen = ObjectFilter(("_SUCCESS", "a", "b", "c", "large"), max_size="1K")
        status = await fleet.run(copy_spec(source, destination, filter=chosen))
        assert (status["state"], status["copied"], status["failed"]) == ("failed", 2, 2)
        first, announcer = status["failures"]
        assert (first["destination"], first["code"]) == ("b", "not-found")
        assert announcer["destination"] == "_SUCCESS"
        assert set(content(destination)) == {"a", "c"}


# Objects whose keys the destination cannot hold: failed, skipped, or copied under another key.


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


async def test_escaped_keys_are_copied_once_and_can_be_read_back(
    fleet_of: Any, tmp_path: Path
) -> None:
    async with fleet_of() as fleet:
        (tmp_path / "out").mkdir()
        source, files = memory_spec(), StoreSpec("file", str(tmp_path / "out"))
        fill(source, CONTENT)
        spec = copy_spec(
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


# What a source has and no copy takes along: told, and no harm to the rest.


async def test_journals_of_others_are_left_out_and_counted(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        source, destination = buckets()
        reserved = {f"in/sub/.skyplane/jobs/ab/{number}": b"1" for number in (1, 2)}
        fill(source, {"in/x": b"1", **reserved})
        spec = copy_spec(source, destination, source_prefix="in")
        status = await fleet.run(spec)
        assert (status["state"], status["objects"], status["copied"]) == ("succeeded", 1, 1)
        assert status["reserved"] == 2
        assert content(destination) == {"x": b"1"}


async def test_a_name_that_no_store_can_hold_is_left_out_by_a_filter(
    fleet_of: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_bytes(b"1")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in" / "loop")
    (tmp_path / "in" / os.fsdecode(b"bad-\xff")).write_bytes(b"")

    async with fleet_of() as fleet:
        source, destination = StoreSpec("file", str(tmp_path)), memory_spec()
        spec = copy_spec(source, destination, source_prefix="in")
        status = await fleet.run(spec)
        assert status["state"] == "failed"
        assert "not UTF-8" in status["error"]["message"]
        spec = copy_spec(source, destination, source_prefix="in", exclude=("bad-?",))
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == ("succeeded", 1)


async def test_patterns_without_a_match_are_told(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        source, destination = buckets({"in/x": b"1", "in/tmp/y": b"1"})
        more = {"exclude": ("tmp/", "tmp"), "include": ("x", "*.csv"), "publish_last": ("/x", "z")}
        spec = copy_spec(source, destination, source_prefix="in", **more)
        status = await fleet.run(spec)
        assert (status["state"], status["copied"]) == ("succeeded", 1)
        told = ["include '*.csv'", "exclude 'tmp'", "publish_last 'z'"]
        assert list(status["unmatched_patterns"]) == told


# The lead's digest of a source, which is the data version of the copy.


async def test_a_second_run_that_copies_nothing_has_the_same_digest(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        source, destination = buckets({"in/x": b"1", "in/_SUCCESS": b"", "in/left-out": b"2"})
        spec = copy_spec(
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
        fill(source, {"in/x": b"3"})
        assert (await fleet.run(spec))["source_digest"] != expected.text


async def test_a_listing_that_fails_gives_no_digest(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        spec = copy_spec(memory_spec(), memory_spec(), source_prefix="gone", recursive=False)
        status = await fleet.run(spec)
        assert (status["state"], status["source_digest"]) == ("failed", "")


# Paths of files are as long as the file system allows, in every way that an object travels.


#: More than the key of an object may have in a cloud.
DEEP: Final = "/".join(["d" * 200] * 8)


async def test_long_paths_travel_whole_together_and_in_parts(tmp_path: Path, fleet_of: Any) -> None:
    source, destination = (StoreSpec("file", str(tmp_path / end)) for end in ("src", "dst"))
    bodies = {f"{DEEP}/{name}": b"small" for name in ("one", "two", "e" * 255)}
    bodies[f"{DEEP}/parts"] = os.urandom(2 * MIB + 1)
    for end in (source, destination):
        os.mkdir(end.bucket)
    fill(source, bodies)
    spec = copy_spec(source, destination, chunk_bytes=MIB, whole_bytes=MIB)
    async with fleet_of() as fleet:
        status = await fleet.run(spec)
    assert (status["state"], status["error"]) == ("succeeded", None)
    assert content(destination) == bodies


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


# Objects without an ETag, as a server shows files that were laid into its folder.


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


async def test_a_file_laid_into_a_servers_folder_is_copied_and_replaced(
    folders: tuple[str, dict[str, Path]], fleet_of: Any
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
    store.close()
    spec = copy_spec(source, destination, chunk_bytes=PART, conflict="replace")
    async with fleet_of(**ROOMY) as fleet:
        status = await fleet.run(spec)
    assert (status["state"], status["error"]) == ("succeeded", None)
    assert (status["copied"], status["pinned_by_time"]) == (4, 3)
    assert content(destination) == {**laid, "beside": b"with an ETag"}
