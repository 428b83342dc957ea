"""Late writes of an upload never change the finished file.

A sink that pauses, or has a slow disk, may have the upload's file open while another sink
completes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.stores.by_sink import complete_by_sink

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import IF_ABSENT, PartInfo
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.local import uploads
from skyplane_gateway.stores.local.uploads import LocalUpload

BODY = b"body of the only part"

Act = Callable[[], object]


@pytest.fixture
def upload_id(store: ObjectStore) -> str:
    return store.create_upload("k")


@pytest.fixture
def part(store: ObjectStore, upload_id: str) -> PartInfo:
    return write(store, upload_id)


@pytest.fixture
def draft(upload_id: str, root: Path) -> int:
    """The inode of the upload's file."""
    return LocalUpload.named("k", upload_id, root / "k").draft.stat().st_ino


def write(store: ObjectStore, upload_id: str) -> PartInfo:
    return store.put_part("k", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))


def complete(store: ObjectStore, upload_id: str, part: PartInfo) -> str:
    return store.complete_upload(
        "k", upload_id, [part], precondition=IF_ABSENT, size_bytes=len(BODY), crc32c=crc32c(BODY)
    ).etag


def before(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, act: Act) -> None:
    """Call `act` just before the next call of that function."""
    honest, acts = getattr(place, name), [act]

    def call(*arguments: Any) -> Any:
        while acts:
            acts.pop()()
        return honest(*arguments)

    monkeypatch.setattr(place, name, call)


def test_a_writer_that_pauses_in_the_middle_of_its_part(
    store: ObjectStore, root: Path, upload_id: str, part: PartInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_LOCK_ATTEMPTS", 2)
    etags: list[str] = []

    def elsewhere() -> None:
        etags.append(complete(store, upload_id, part))
        with (root / "k").open("r+b") as file:
            file.write(b"BODY")  # A user changes the file in place.
        etags.append(store.head("k").etag)

    before(monkeypatch, uploads, "write_all", elsewhere)
    with pytest.raises(errors.NotFound):
        write(store, upload_id)
    assert etags[1] == store.head("k").etag
    assert (root / "k").read_bytes() == b"BODY" + BODY[4:]
    assert [path.name for path in root.iterdir()] == ["k"]


def test_a_writer_that_pauses_before_its_lock(
    store: ObjectStore,
    root: Path,
    upload_id: str,
    part: PartInfo,
    draft: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etags: list[str] = []
    before(
        monkeypatch,
        uploads,
        "_lock",
        lambda: etags.append(complete(store, upload_id, part)),
    )
    with pytest.raises(errors.NotFound):
        write(store, upload_id)
    assert etags == [store.head("k").etag]
    assert (root / "k").stat().st_ino == draft, "no copy"


def test_a_writer_after_a_crash_between_link_and_unlink(
    store: ObjectStore, root: Path, upload_id: str, part: PartInfo
) -> None:
    upload = LocalUpload.named("k", upload_id, root / "k")
    os.link(upload.draft, root / "k")
    etag = store.head("k").etag
    with pytest.raises(errors.NotFound):
        write(store, upload_id)
    done = complete_by_sink(store, upload_id, [part], BODY)
    assert done["etag"] == store.head("k").etag == etag


def test_a_completion_waits_for_a_writer(
    store: ObjectStore,
    root: Path,
    upload_id: str,
    part: PartInfo,
    draft: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upload = LocalUpload.named("k", upload_id, root / "k")
    other = os.open(upload.draft, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_SH)
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            os.close(other)

    monkeypatch.setattr(time, "sleep", pause)
    complete(store, upload_id, part)
    assert len(pauses) == 3
    assert (root / "k").stat().st_ino == draft


def test_nothing_is_written_while_an_upload_is_completed(
    store: ObjectStore, root: Path, upload_id: str, part: PartInfo
) -> None:
    upload = LocalUpload.named("k", upload_id, root / "k")
    with (
        upload.finished(random.Random(1)),
        pytest.raises(errors.StoreUnavailable, match="being completed"),
    ):
        write(store, upload_id)
    assert write(store, upload_id) == part


def test_two_completions_at_once(
    store: ObjectStore, root: Path, upload_id: str, part: PartInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    etags: list[str] = []
    before(
        monkeypatch,
        uploads,
        "_lock",
        lambda: etags.append(complete(store, upload_id, part)),
    )
    with pytest.raises((errors.NotFound, errors.PreconditionFailed)):
        complete(store, upload_id, part)
    assert etags == [store.head("k").etag]
    assert [path.name for path in root.iterdir()] == ["k"]


def test_a_repeated_completion_of_a_copy_is_recognised_by_its_bytes(
    store: ObjectStore,
    root: Path,
    upload_id: str,
    part: PartInfo,
    draft: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy was published, since a late writer had the file open."""
    monkeypatch.setattr(uploads, "_LOCK_ATTEMPTS", 2)
    answers: list[dict[str, Any]] = []
    before(
        monkeypatch,
        uploads,
        "write_all",
        lambda: answers.append(complete_by_sink(store, upload_id, [part], BODY)),
    )
    with pytest.raises(errors.NotFound):
        write(store, upload_id)
    assert (root / "k").stat().st_ino != draft
    made = {"etag": store.head("k").etag, "crc32c": crc32c(BODY)}
    assert complete_by_sink(store, upload_id, [part], BODY) == answers[0] == made


def test_a_file_system_without_locks(
    store: ObjectStore, root: Path, upload_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    complete(store, upload_id, write(store, upload_id))
    assert (root / "k").read_bytes() == BODY
