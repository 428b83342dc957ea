"""The ends of a move are two places, or it is refused."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.journal.document import Journal, encode_journal
from skyplane_gateway.stores.base import ObjectStore, Wants
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.errors import ConfigurationInvalid, NotFound, PermissionDenied
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer import aliasing
from skyplane_orchestration.transfer.aliasing import (
    require_distinct_files,
    require_no_overlap,
)
from skyplane_orchestration.transfer.deletes import check_extra
from skyplane_orchestration.transfer.move import check_move


def require_distinct_ends(job: TransferJob, source: ObjectStore, copies: ObjectStore) -> None:
    aliasing.require_distinct_ends(job, source, copies, random.Random(1))


@pytest.fixture
def bucket() -> MemoryStore:
    name = uuid.uuid4().hex
    create_bucket(name)
    return MemoryStore(StoreSpec("memory", name))


def job_of(source: str, destination: str, **more: Any) -> TransferJob:
    """A move within one bucket, under two endpoints."""
    one, other = (
        Location(f"s3://b/{key}", endpoint_url=f"http://{host}")
        for key, host in ((source, "one"), (destination, "two"))
    )
    return TransferJob(one, other, move=True, **more)


def keys(store: ObjectStore) -> list[str]:
    return [row.key for row in store.list("")]


@pytest.mark.parametrize(
    ("source", "destination"),
    [("p/", "p/"), ("p", "p/"), ("", ""), ("p/", "p/in/"), ("p/in/", "p/"), ("p/", ""), ("", "p/")],
)
def test_one_bucket_by_two_names(source: str, destination: str, bucket: MemoryStore) -> None:
    job = job_of(source, destination)
    require_no_overlap(job)
    with pytest.raises(ConfigurationInvalid):
        require_distinct_ends(job, bucket, bucket)
    assert keys(bucket) == []


@pytest.mark.parametrize(("source", "destination"), [("p/", "q/"), ("p/", "pp/")])
def test_two_folders_of_one_bucket(source: str, destination: str, bucket: MemoryStore) -> None:
    require_distinct_ends(job_of(source, destination), bucket, bucket)
    assert keys(bucket) == []


@pytest.mark.parametrize(
    ("source", "destination", "same"),
    [("p/a", "p/a", True), ("p/a", "p/", True), ("a", "", True), ("p/a", "p/b", False)],
)
def test_one_object(source: str, destination: str, same: bool, bucket: MemoryStore) -> None:
    job = job_of(source, destination, recursive=False)
    if same:
        with pytest.raises(ConfigurationInvalid):
            require_distinct_ends(job, bucket, bucket)
    else:
        require_distinct_ends(job, bucket, bucket)
    assert keys(bucket) == []


def test_two_buckets_of_one_name(bucket: MemoryStore) -> None:
    name = uuid.uuid4().hex
    create_bucket(name)
    require_distinct_ends(job_of("p/", "p/"), bucket, MemoryStore(StoreSpec("memory", name)))


def test_a_server_over_the_folder_that_is_moved(tmp_path: Path) -> None:
    """Two kinds of store, and different keys for the same files."""
    (tmp_path / "served/data").mkdir(parents=True)
    files = LocalStore(StoreSpec("file", "/"))
    server = LocalStore(StoreSpec("file", str(tmp_path / "served")))
    source = Location(f"{tmp_path}/served/data/")
    job = TransferJob(source, Location("s3://served/data/"), move=True)
    with pytest.raises(ConfigurationInvalid, match=r"file://.* and s3://.*one place by two names"):
        require_distinct_ends(job, files, server)
    assert list((tmp_path / "served/data").iterdir()) == []
    require_distinct_ends(
        TransferJob(source, Location("s3://served/other/"), move=True), files, server
    )


def test_a_destination_that_this_process_may_not_write_to(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionDenied("s3:PutObject")

    monkeypatch.setattr(MemoryStore, "put", refuse)
    with pytest.raises(PermissionDenied, match=r"s3://b/q/.* not the source.*s3:PutObject"):
        require_distinct_ends(job_of("p/", "q/"), bucket, bucket)


@pytest.mark.parametrize(("closed", "is_refused"), [("p/", True), ("q/", False)])
def test_a_source_with_permission_for_one_folder(
    closed: str, is_refused: bool, bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permission for the source folder itself is enough."""
    seen: list[MemoryStore] = []

    class Half(MemoryStore):
        def list(
            self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
        ) -> Iterator[ObjectInfo]:
            seen.append(self)
            if prefix.startswith(closed):
                raise PermissionDenied("s3:ListBucket")
            return super().list(prefix, start_after=start_after)

    source = Half(bucket.spec)
    if is_refused:
        with pytest.raises(PermissionDenied, match="s3:ListBucket"):
            require_distinct_ends(job_of("p/", "q/"), source, bucket)
    else:
        require_distinct_ends(job_of("p/", "q/"), source, bucket)
    assert seen
    assert keys(bucket) == []


def test_a_probe_is_written_again_if_its_folder_was_removed(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, lost = MemoryStore.put, [True]

    def put(self: MemoryStore, *arguments: Any, **more: Any) -> ObjectInfo:
        if lost and lost.pop():
            raise NotFound("no such folder")
        return honest(self, *arguments, **more)

    monkeypatch.setattr(MemoryStore, "put", put)
    with pytest.raises(ConfigurationInvalid):
        require_distinct_ends(job_of("p/", "p/"), bucket, bucket)
    lost.extend([True] * 9)
    with pytest.raises(NotFound):
        require_distinct_ends(job_of("p/", "p/"), bucket, bucket)


def test_the_next_check_removes_the_probe_of_a_killed_one(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe has the same key in every run of the job."""

    class Killed(BaseException): ...

    def kill(*_: Any) -> None:
        raise Killed

    job = job_of("p/", "q/")
    with monkeypatch.context() as dying:
        dying.setattr(aliasing, "_require_not_at_source", kill)
        dying.setattr(aliasing, "_remove", kill)
        with pytest.raises(Killed):
            require_distinct_ends(job, bucket, bucket)
    assert len(keys(bucket)) == 1
    require_distinct_ends(job, bucket, bucket)
    assert keys(bucket) == []


@pytest.mark.parametrize("writes_again", [True, False])
def test_a_probe_that_a_concurrent_check_removes_does_not_count(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch, writes_again: bool
) -> None:
    """Otherwise the move would delete the only copies."""
    honest, hurried, lost = MemoryStore.list, [True], []

    def look(self: MemoryStore, prefix: str, *more: Any, **options: Any) -> Any:
        rows = list(honest(self, prefix, *more, **options))
        if rows and hurried and hurried.pop():
            lost.append(rows[0])
            self.delete(rows[0].key)
            if writes_again:
                token = rows[0].key.split("/")[-2]
                self.put(rows[0].key, encode_journal(Journal(token, 1, "", 1, writer="another")))
            return iter(())
        return iter(rows)

    monkeypatch.setattr(MemoryStore, "list", look)
    with pytest.raises(ConfigurationInvalid):
        require_distinct_ends(job_of("p/", "p/"), bucket, bucket)
    assert len(lost) == 1


def test_a_missing_destination_folder_is_not_created(tmp_path: Path) -> None:
    job = TransferJob(Location(f"{tmp_path}/in/"), Location(f"{tmp_path}/out/"), move=True)
    files = LocalStore(StoreSpec("file", "/"))
    require_distinct_ends(job, files, files)
    assert list(tmp_path.iterdir()) == []


# -- files


@pytest.mark.parametrize(
    ("source", "destination"), [("in", "mounted"), ("in", "mounted/sub"), ("in/sub", "mounted")]
)
def test_a_folder_that_is_mounted_twice(
    source: str, destination: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that `realpath` does not resolve looks like a bind mount."""
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "mounted").symlink_to(tmp_path / "in")
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path))
    one, other = (Location(f"{tmp_path}/{end}/") for end in (source, destination))
    with pytest.raises(ConfigurationInvalid, match="one folder"):
        require_no_overlap(TransferJob(one, other, move=True))


@pytest.fixture
def files(tmp_path: Path) -> TransferJob:
    for folder in ("in/one", "in/two", "out"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("one/a", "two/b"):
        (tmp_path / "in" / name).write_text(name)
    return TransferJob(Location(f"{tmp_path}/in/"), Location(f"{tmp_path}/out/"), move=True)


def look(job: TransferJob, *names: str) -> None:
    """Checks these pairs of source and copy."""
    rows = [
        {"source": f"{job.source.key}{name}", "destination": f"{job.destination.key}{name}"}
        for name in names
    ]
    require_distinct_files(job, lambda: iter(rows))


def test_a_file_and_its_copy_are_one(files: TransferJob, tmp_path: Path) -> None:
    look(files, "one/a", "two/b")
    (tmp_path / "out/one").symlink_to(tmp_path / "in/one")
    with pytest.raises(ConfigurationInvalid, match="one file"):
        look(files, "none", "one/a")


def test_a_copy_is_the_source_of_another_object(files: TransferJob, tmp_path: Path) -> None:
    (tmp_path / "out/one").symlink_to(tmp_path / "in/two")
    (tmp_path / "in/two/a").write_text("the copy of one/a")
    (tmp_path / "out/two").mkdir()
    (tmp_path / "out/two/a").write_text("the copy of two/a")
    with pytest.raises(ConfigurationInvalid, match="out/one is a folder of the source too"):
        look(files, "one/a", "two/a")
    look(files, "two/a")
    look(files, "one/a")


def test_a_link_to_its_copy_may_be_deleted_and_a_copy_that_is_a_link_keeps_its_source(
    files: TransferJob, tmp_path: Path
) -> None:
    (tmp_path / "out/a").write_bytes(b"a")
    (tmp_path / "in/a").symlink_to(tmp_path / "out/a")
    (tmp_path / "in/b").write_bytes(b"b")
    (tmp_path / "out/b").symlink_to(tmp_path / "in/b")
    look(files, "a")
    with pytest.raises(ConfigurationInvalid, match="one file"):
        look(files, "b")


def test_a_file_may_get_another_name_in_its_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    one, other = Location(f"{tmp_path}/a"), Location(f"{tmp_path}/b")
    job = TransferJob(one, other, move=True, recursive=False)
    require_distinct_files(job, lambda: [{"source": one.key, "destination": other.key}])


@pytest.mark.parametrize("is_move", [True, False])
@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_folder_that_cannot_be_looked_at_is_left_to_the_listing(
    tmp_path: Path, end: str, is_move: bool
) -> None:
    """No file system can hold its name; a folder may also be closed to this user."""
    ends = {"source": tmp_path / "in", "destination": tmp_path / "out", end: tmp_path / ("x" * 300)}
    (tmp_path / "in").mkdir()
    source, destination = (Location(f"{ends[name]}/") for name in ("source", "destination"))
    job = TransferJob(source, destination, move=is_move, delete=not is_move)
    check: Any = check_move if is_move else check_extra
    check(job, CredentialSources(), random.Random(1))
