from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores.checksums import crc32c_of
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import open as storage_open
from skyplane_orchestration.transfer import row_spool
from skyplane_orchestration.transfer.move import Removal, check_move, remove_sources

NONE = CredentialSources(is_ambient_allowed=False)
RNG = random.Random(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for end, key in product(("in", "out"), ("a", "b", "sub/c", "_SUCCESS")):
        path = tmp_path / end / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())
    return tmp_path / "in"


def job_of(folder: Path, **more: Any) -> TransferJob:
    ends = Location(f"{folder}/"), Location(f"{folder.parent}/out/")
    return TransferJob(*ends, move=True, **more)


def row(folder: Path, key: str, state: str = "copied", **changes: Any) -> dict[str, Any]:
    source = f"{folder}/{key}".lstrip("/")
    destination = source.replace("/in/", "/out/")
    body = (folder / key).read_bytes()
    store = LocalStore(StoreSpec("file", "/"))
    return {
        "state": state,
        "source": source,
        "destination": destination,
        "bytes": len(body),
        "crc32c": crc32c_of(body),
        "source_etag": store.head(source).etag,
        "destination_etag": store.head(destination).etag,
        **changes,
    }


def remove(folder: Path, *rows: dict[str, Any]) -> Removal:
    removal = Removal()
    remove_sources(job_of(folder), rows, NONE, removal, RNG)
    return removal


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_only_copied_sources_are_deleted(folder: Path) -> None:
    rows = [row(folder, "a"), row(folder, "b", "skipped"), row(folder, "sub/c", "failed")]
    removal = remove(folder, *rows)
    assert (removal.removed, removal.kept, removal.failed) == (1, 0, 0)
    assert left(folder) == ["_SUCCESS", "b", "sub/c"]


def test_a_source_that_an_earlier_epoch_copied_is_compared_before_its_delete(
    folder: Path,
) -> None:
    """The journal has only the name of such an object."""
    rows = [row(folder, key, source_etag="") for key in ("a", "b", "sub/c")]
    for one in rows:
        del one["crc32c"]
    out = folder.parent / "out"
    (out / "b").write_bytes(b"z")
    (out / "sub/c").unlink()
    removal = remove(folder, *rows)
    assert (removal.removed, removal.kept, removal.failed) == (1, 2, 0)
    assert left(folder) == ["_SUCCESS", "b", "sub/c"]


@pytest.mark.parametrize("by_version", [True, False])
def test_a_source_that_was_changed_since_stays(by_version: bool, folder: Path) -> None:
    """By version if the row has one, else by content."""
    more = {} if by_version else {"source_etag": ""}
    rows = [row(folder, key, **more) for key in ("a", "b", "sub/c")]
    (folder / "b").write_bytes(b"z")
    (folder / "sub/c").write_bytes(b"of another size")
    removal = remove(folder, *rows)
    assert (removal.removed, removal.kept) == (1, 2)
    assert left(folder) == ["_SUCCESS", "b", "sub/c"]
    assert f"file://{folder}/b is still there: it was changed" in removal.reasons[0]


def test_a_source_whose_copy_was_changed_or_removed_since_stays(folder: Path) -> None:
    rows = [row(folder, key) for key in ("a", "b", "sub/c")]
    out = folder.parent / "out"
    (out / "a").write_bytes(b"z")
    (out / "b").unlink()
    (out / "sub/c").touch()  # Another version of the same bytes.
    os.utime(out / "sub/c", (1, 1))
    removal = remove(folder, *rows)
    assert (removal.removed, removal.kept) == (1, 2)
    assert left(folder) == ["_SUCCESS", "a", "b"]
    assert "its copy was changed or removed" in removal.reasons[0]


def test_a_source_that_changes_during_the_check_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(folder, "a")]
    honest = LocalStore.delete

    def delete(self: LocalStore, key: str, *, if_match: str | None = None) -> None:
        (folder / "a").write_bytes(b"another")
        honest(self, key, if_match=if_match)

    monkeypatch.setattr(LocalStore, "delete", delete)
    removal = remove(folder, *rows)
    assert (removal.removed, removal.kept) == (0, 1)
    assert (folder / "a").read_bytes() == b"another"


def test_nothing_is_deleted_when_an_end_cannot_be_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing in the wrong region names the right one; a `head` does not."""
    rows, opened = [row(folder, "a")], list[str]()

    def check(_: LocalStore, prefix: str = "") -> None:
        opened.append(f"/{prefix}")
        if prefix.endswith("/out/"):
            raise StoreUnavailable("not now", is_permanent=True)

    monkeypatch.setattr(LocalStore, "check", check)
    with pytest.raises(StoreUnavailable, match="not now"):
        remove(folder, *rows)
    assert opened == [f"{folder}/", f"{folder.parent}/out/"]
    assert "a" in left(folder)


@pytest.mark.parametrize("by_version", [True, False])
def test_nothing_is_deleted_when_a_copy_is_its_own_source(by_version: bool, folder: Path) -> None:
    """A linked folder of the destination may lead back to the source."""
    (folder.parent / "out/sub/c").unlink()
    (folder.parent / "out/sub").rmdir()
    (folder.parent / "out/sub").symlink_to(folder / "sub")
    more: dict[str, Any] = {} if by_version else {"source_etag": "", "crc32c": None}
    rows = [row(folder, "a"), row(folder, "sub/c", **more)]
    before = left(folder)
    with pytest.raises(ConfigurationInvalid, match=r"sub/c .*one file.*nothing was deleted"):
        remove(folder, *rows)
    assert left(folder) == before


def test_nothing_is_deleted_when_the_ends_are_one_bucket_by_two_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_bucket("one-bucket")
    store = MemoryStore(StoreSpec("memory", "one-bucket"))
    info = store.put("p/a", b"precious")
    monkeypatch.setattr(storage_open, "open_store", lambda *_: store)
    one, other = (Location("s3://b/p/", endpoint_url=f"http://{host}") for host in ("one", "two"))
    job = TransferJob(one, other, move=True)
    copied = {
        "state": "copied",
        "source": "p/a",
        "destination": "p/a",
        "bytes": 8,
        "crc32c": crc32c_of(b"precious"),
        "source_etag": info.etag,
        "destination_etag": info.etag,
    }
    with pytest.raises(ConfigurationInvalid, match="one place by two names"):
        remove_sources(job, [copied], NONE, Removal(), RNG)
    with pytest.raises(ConfigurationInvalid, match="one place by two names"):
        check_move(job, NONE, RNG)
    assert [row.key for row in store.list("")] == ["p/a"]


def test_a_source_that_is_gone_counts_as_removed(folder: Path) -> None:
    rows = [row(folder, "a")]
    (folder / "a").unlink()
    assert remove(folder, *rows).removed == 1


def test_objects_that_announce_others_are_deleted_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []

    def delete(self: LocalStore, key: str, *, if_match: str | None = None) -> None:
        if "/.skyplane/" not in key:
            deleted.append(key.rpartition("/")[2])

    monkeypatch.setattr(LocalStore, "delete", delete)
    remove(folder, row(folder, "a"), row(folder, "_SUCCESS"))
    assert deleted == ["_SUCCESS", "a"]


def test_the_report_is_read_whole_before_the_first_delete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lead may end during the deletes."""
    wanted = [row(folder, key) for key in ("a", "b", "_SUCCESS")]
    before, seen = left(folder), list[list[str]]()

    def report() -> Iterator[dict[str, Any]]:
        for one in wanted:
            yield one
            seen.append(left(folder))

    monkeypatch.setattr(row_spool, "_IN_MEMORY_BYTES", 1)
    removal = Removal()
    remove_sources(job_of(folder), report(), NONE, removal, RNG)
    assert seen == [before] * 3
    assert (removal.removed, left(folder)) == (3, ["sub/c"])


def test_nothing_is_deleted_when_there_is_no_room_for_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SpooledTemporaryFile, "write", write)
    before = left(folder)
    with pytest.raises(StoreError, match="No space left"):
        remove(folder, row(folder, "a"))
    assert left(folder) == before


def test_a_source_that_cannot_be_deleted_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LocalStore.delete

    def delete(self: LocalStore, key: str, *, if_match: str | None = None) -> None:
        if key.endswith("/a"):
            raise StoreUnavailable("not now")
        honest(self, key, if_match=if_match)

    monkeypatch.setattr(LocalStore, "delete", delete)
    removal = remove(folder, row(folder, "a"), row(folder, "b"))
    assert (removal.removed, removal.failed) == (1, 1)
    assert "not now" in removal.reasons[0]


# -- beforehand


def test_a_store_that_refuses_deletes_is_detected_before_the_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_bucket("move-in")
    store = MemoryStore(StoreSpec("memory", "move-in"))
    store.put("p/a", b"1")
    asked: list[str] = []
    honest = MemoryStore.delete

    def delete(self: MemoryStore, key: str) -> None:
        asked.append(key)
        honest(self, key)

    monkeypatch.setattr(MemoryStore, "delete", delete)
    monkeypatch.setattr(storage_open, "open_store", lambda *_: store)
    job = TransferJob(Location("s3://in/p"), Location("s3://out/q/"), move=True)
    check_move(job, NONE, RNG)
    assert asked[0] == "p/.skyplane/jobs/may-delete"
    assert all("/.skyplane/jobs/" in key for key in asked), "no key of anybody's data"
    assert [info.key for info in store.list("")] == ["p/a"]

    def refuse(self: MemoryStore, key: str) -> None:
        raise PermissionDenied("s3:DeleteObject")

    monkeypatch.setattr(MemoryStore, "delete", refuse)
    with pytest.raises(PermissionDenied, match=r"s3://in/p.*s3:DeleteObject"):
        check_move(job, NONE, RNG)


def test_a_folder_that_may_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_move(job_of(folder), NONE, RNG)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionDenied, match="may not be deleted from"):
        check_move(job_of(folder), NONE, RNG)


def test_places_that_overlap_are_refused(folder: Path) -> None:
    for source, target in (("in", "in"), ("in", "in/sub"), ("in/sub", "in")):
        one, other = (Location(f"{folder.parent}/{end}/") for end in (source, target))
        with pytest.raises(ConfigurationInvalid):
            check_move(TransferJob(one, other, move=True), NONE, RNG)


def test_a_move_must_be_verified(folder: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="verif"):
        job_of(folder, verify="none")
    job = job_of(folder)
    assert TransferJob.from_dict(job.to_dict()) == job
