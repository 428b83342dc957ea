"""Syncs of files with a manifest: other inodes, other rules, a manifest elsewhere."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pairs import Run, runner

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.stores import open_store
from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e

ENDS = [("src",), ("dst",), ("src", "dst")]


@pytest.fixture
def run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in "abc":
        (tmp_path / "src" / name).write_text("1")
    return runner(home, {}, monkeypatch, capsys)


def edited(file: Path) -> None:
    """Written in place, with the time that it had."""
    before = file.stat()
    file.write_text("2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def mounted_again(folder: Path) -> None:
    """All files get other inodes, and keep their times."""
    shutil.copytree(folder, folder.with_name("again"))
    shutil.rmtree(folder)
    folder.with_name("again").rename(folder)


@pytest.mark.parametrize("ends", ENDS, ids="-".join)
def test_other_inodes_copy_nothing_at_any_time(
    run: Run, tmp_path: Path, ends: tuple[str, ...]
) -> None:
    assert run("sync", "src", "dst")["copied"] == 3
    for _ in range(2):  # The second time by the rows of the first.
        for end in ends:
            mounted_again(tmp_path / end)
        again = run("sync", "src", "dst")
        assert (again["copied"], again["skipped"], again["warnings"]) == (0, 3, [])
    # Now both are known as they are, and nobody reads them.
    assert run("sync", "src", "dst")["gateways"] == ""


@pytest.mark.parametrize("end", ["src", "dst"])
def test_other_bytes_under_another_inode_are_found(run: Run, tmp_path: Path, end: str) -> None:
    run("sync", "src", "dst")
    edited(tmp_path / end / "b")
    mounted_again(tmp_path / end)
    assert run("sync", "src", "dst")["copied"] == 1
    assert (tmp_path / "dst/b").read_text() == (tmp_path / "src/b").read_text()


@pytest.mark.parametrize("rule", ["--checksum", "--size-only", "--update"])
def test_deletes_under_other_rules_leave_no_row(run: Run, tmp_path: Path, rule: str) -> None:
    run("sync", "src", "dst")
    (tmp_path / "src/a").unlink()
    assert run("sync", "src", "dst", "--delete", rule)["deleted"] == 1
    folder = f"{tmp_path}/dst/".removeprefix("/")
    with closing(open_store(StoreSpec("file", "/"), None)) as store:
        rows = ManifestReader(store, folder).rows()
        assert {row.key for row in rows if row.copy} == {"b", "c"}


@pytest.mark.parametrize("gateways", ["never", "always"])
def test_an_edit_that_no_listing_tells_is_found(run: Run, tmp_path: Path, gateways: str) -> None:
    arguments = ("src", "dst", "--manifest-at", "meta/dst", "--gateways", gateways)
    assert run("sync", *arguments)["copied"] == 3
    assert sorted(one.name for one in (tmp_path / "dst").iterdir()) == ["a", "b", "c"]
    assert (tmp_path / "meta/dst/pointer.json").exists()
    edited(tmp_path / "dst/b")
    again = run("sync", *arguments)
    assert (again["copied"], again["skipped"]) == (1, 2)
    assert again["warnings"] == [
        "changed at the destination since the copy, and replaced: 1 object"
    ]
    assert (tmp_path / "dst/b").read_text() == "1"


def test_it_is_of_one_place(run: Run, tmp_path: Path) -> None:
    run("sync", "src", "dst", "--manifest-at", "./meta")
    pointer = (tmp_path / "meta/pointer.json").read_bytes()
    other = run("sync", "src", "other", "--manifest-at", "./meta")
    assert other["copied"] == 3
    assert all("is the manifest of" in text for text in other["warnings"])
    assert len(other["warnings"]) == 2
    assert (tmp_path / "meta/pointer.json").read_bytes() == pointer


def test_deletes_are_recorded(run: Run, tmp_path: Path) -> None:
    arguments = ("src", "dst", "--manifest-at", "./meta", "--delete")
    run("sync", *arguments)
    (tmp_path / "src/a").unlink()
    assert run("sync", *arguments)["deleted"] == 1
    planned: dict[str, Any] = run("sync", *arguments, "--dry-run")
    assert (planned["summary"]["copy"], planned["summary"]["delete"]) == (0, 0)


@pytest.mark.parametrize("place", ["dst", "dst/meta", "src/meta"])
def test_it_may_not_lie_in_source_or_destination(
    home: Home, run: Run, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    for more in ([], ["--dry-run"]):
        assert main(["sync", "src", "dst", "--manifest-at", f"./{place}", *more]) == 2
        assert "--manifest-at lies in " in capsys.readouterr().err
