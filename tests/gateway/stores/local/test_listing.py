"""Listings of files: cost, links, names, and folders that cannot be read."""

from __future__ import annotations

import errno
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common import errors
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.stores import ObjectStore, StoreSpec
from skyplane_gateway.stores.local import birth, listing
from skyplane_gateway.stores.local.paths import info_of
from skyplane_gateway.stores.registry import open_without_retries

FOLDERS, FILES = 20, 25


@pytest.fixture
def wide(tmp_path: Path) -> ObjectStore:
    """Files `00/00` to `19/24`, and `last`."""
    for folder in range(FOLDERS):
        (tmp_path / f"{folder:02d}").mkdir()
        for number in range(FILES):
            (tmp_path / f"{folder:02d}" / f"{number:02d}").write_bytes(b"")
    (tmp_path / "last").write_bytes(b"")
    return open_without_retries(StoreSpec("file", str(tmp_path)))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the directories that were read, in order."""
    names: list[str] = []
    scandir = os.scandir

    def counting(path: Any) -> Any:
        names.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    return names


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def wanted_keys(store: ObjectStore, rule: dict[str, tuple[str, ...]]) -> list[str]:
    """What a job with these filters lists below `in/`."""
    wants = SelectionRule("in", "", **rule).wants  # type: ignore[arg-type]
    return [info.key for info in store.list("in/", wants=wants)]


def page(store: ObjectStore, start_after: str | None, limit: int) -> list[str]:
    rows = store.list("", start_after=start_after)
    return [info.key for info in islice(rows, limit)]


def test_a_page_reads_no_directory_before_its_start(wide: ObjectStore, reads: list[str]) -> None:
    assert page(wide, "10/24", 1) == ["11/00"]
    # The root, the folder of the last key, and the next one.
    assert reads[1:] == ["10", "11"]
    reads.clear()
    assert page(wide, "19/24", 5) == ["last"]
    assert reads[1:] == ["19"]
    reads.clear()
    assert page(wide, "10", 1) == ["10/00"]
    assert reads[1:] == ["10"]
    reads.clear()
    assert page(wide, "100", 1) == ["11/00"]
    assert reads[1:] == ["11"]


def test_all_pages_together_read_each_directory_about_once(
    wide: ObjectStore, reads: list[str]
) -> None:
    found: list[str] = []
    while rows := page(wide, found[-1] if found else None, 10):
        found += rows
    assert len(found) == FOLDERS * FILES + 1
    assert found == sorted(found)
    pages = len(found) // 10 + 2
    # Each page reads the root, the folder it begins in and at most two more.
    assert len(reads) <= pages * 2 + FOLDERS + 2


def test_a_page_reads_no_file_before_its_start(
    wide: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def counting(key: str, status: os.stat_result) -> Any:
        looked.append(key)
        return info_of(key, status)

    monkeypatch.setattr(listing, "info_of", counting)
    assert page(wide, "07/20", 3) == ["07/21", "07/22", "07/23"]
    assert looked == ["07/21", "07/22", "07/23"]


def test_links_are_followed_and_broken_links_left_out(store: ObjectStore, root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "file").write_bytes(b"body")
    (root / "alias").symlink_to(root / "real" / "file")
    (root / "real-2").symlink_to(root / "real")
    (root / "nowhere").symlink_to(root / "none")
    os.mkfifo(root / "pipe")
    assert keys(store) == ["alias", "real-2/file", "real/file"]
    assert store.head("alias").size_bytes == 4


def test_circular_links_are_left_out_with_a_warning(
    store: ObjectStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "file").write_bytes(b"")
    (root / "itself").symlink_to(root / "itself")
    (root / "there").symlink_to(root / "back")
    (root / "back").symlink_to(root / "there")
    assert keys(store) == ["file"]
    for name in ("itself", "there", "back"):
        assert f"circular link: {root / name}" in caplog.text


def test_a_file_written_through_a_linked_folder_is_listed(
    store: ObjectStore, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (root / "sub").symlink_to(tmp_path / "disk")
    written = store.put("sub/a", b"1")
    upload_id = store.create_upload("sub/b/c")
    assert [row.etag for row in store.list("")] == [written.etag]
    assert keys(store, "sub/") == keys(store, "sub/a") == ["sub/a"]
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]
    (root / "sub-").write_bytes(b"")
    assert keys(store) == ["sub-", "sub/a"]
    assert [row.key for row in store.list("", start_after="sub-")] == ["sub/a"]


def test_links_to_a_parent_folder_end(store: ObjectStore, root: Path, tmp_path: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "file").write_bytes(b"")
    (root / "a" / "self").symlink_to(root / "a")
    (root / "a" / "root").symlink_to(root)
    (root / "a" / "above").symlink_to(tmp_path)
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    (tmp_path / "disk" / "deep" / "back").symlink_to(tmp_path / "disk")
    (root / "disk").symlink_to(tmp_path / "disk" / "deep")
    (root / "disk" / "file").write_bytes(b"")
    upload_id = store.create_upload("a/upload")
    assert keys(store) == ["a/file", "disk/back/deep/file", "disk/file"]
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]


def test_unfinished_files_and_empty_directories_are_not_objects(
    store: ObjectStore, root: Path
) -> None:
    store.create_upload("a/k")
    store.put("empty/", b"")
    (root / ".skyplane").mkdir()
    (root / ".skyplane" / "journal").write_bytes(b"")
    assert keys(store) == [".skyplane/journal"]


@pytest.mark.parametrize(
    ("rule", "is_listed"),
    [
        ({"exclude": ("bad*",)}, True),
        ({"exclude": ("*\udcff*",)}, True),
        ({"include": ("good",)}, True),
        ({"exclude": ("bad", "other*")}, False),
        ({}, False),
    ],
)
def test_a_name_that_is_not_utf8_can_be_excluded(
    store: ObjectStore,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    rule: dict[str, tuple[str, ...]],
    is_listed: bool,
) -> None:
    (root / "in").mkdir()
    (root / "in" / os.fsdecode(b"bad-\xff")).write_bytes(b"")
    (root / "in" / "good").write_bytes(b"")
    if not is_listed:
        with pytest.raises(errors.StoreError, match="not UTF-8"):
            wanted_keys(store, rule)
        assert keys(store, "in/good") == ["in/good"], "the name is outside of the prefix"
        return
    assert wanted_keys(store, rule) == ["in/good"]
    assert "left out by the filters" in caplog.text
    caplog.text.encode()


@pytest.mark.parametrize(
    ("rule", "is_listed"),
    [
        ({"exclude": ("shut/*",)}, True),
        ({"exclude": ("shut*",)}, True),
        # The filters may select a file in the folder.
        ({"exclude": ("shut/*.csv",)}, False),
        ({"include": ("good",)}, False),
        ({}, False),
    ],
)
def test_a_folder_without_permission_can_be_excluded(
    store: ObjectStore,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: dict[str, tuple[str, ...]],
    is_listed: bool,
) -> None:
    """The error is simulated, since tests may run as root."""
    scandir = os.scandir

    def guarded(folder: Path) -> Any:
        if Path(folder).name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    (root / "in" / "shut").mkdir(parents=True)
    (root / "in" / "good").write_bytes(b"")
    if not is_listed:
        with pytest.raises(errors.PermissionDenied, match="shut"):
            wanted_keys(store, rule)
        return
    assert wanted_keys(store, rule) == ["in/good"]


@pytest.mark.parametrize("prefix", ["../", "a/../", "./", "/", "a//"])
def test_no_prefix_leads_out_of_the_root(store: ObjectStore, root: Path, prefix: str) -> None:
    (root.parent / "secret").write_bytes(b"x")
    (root / "a").mkdir()
    assert keys(store, prefix) == []


def test_the_whole_machine_may_be_the_bucket(root: Path) -> None:
    store = open_without_retries(StoreSpec("file", "/"))
    key = str(root).lstrip("/") + "/k"
    store.put(key, b"x")
    assert keys(store, key) == [key]
    assert (root / "k").read_bytes() == b"x"


@pytest.mark.parametrize("prefix", ["x" * 300 + "/", "x" * 300 + "/a", "/".join(["y" * 200] * 30)])
def test_no_file_is_below_a_folder_that_no_file_system_can_hold(
    wide: ObjectStore, prefix: str
) -> None:
    """So a copy refuses single objects by their keys, and none by the listing."""
    assert keys(wide, prefix) == []


def test_a_folder_that_cannot_be_looked_at_fails_the_listing(
    wide: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(errors.PermissionDenied, match="allow the gateway's user"):
        keys(wide, "closed/below/")


def test_a_listing_tells_when_a_file_of_an_older_time_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner, mode or name does not change that, but the last change of the inode."""
    store = open_without_retries(StoreSpec("file", str(tmp_path)))
    (tmp_path / "made").write_bytes(b"")
    made_s = (tmp_path / "made").stat().st_mtime
    os.utime(tmp_path / "made", (1e9, 1e9))
    time.sleep(0.05)
    (tmp_path / "made").chmod(0o600)
    (tmp_path / "made").rename(tmp_path / "renamed")
    (tmp_path / "link").symlink_to("renamed")
    for row in store.list(""):
        if row.made_unix_s is None:
            pytest.skip("this file system does not tell")
        assert row.last_modified == 1e9
        assert row.made_unix_s == pytest.approx(made_s, abs=0.03)
        assert row.written_unix_s > row.made_unix_s + 0.03
        assert type(row).from_dict(row.to_dict()) == row
    monkeypatch.setattr(birth, "_statx", lambda: None)
    assert {row.made_unix_s for row in store.list("")} == {None}
