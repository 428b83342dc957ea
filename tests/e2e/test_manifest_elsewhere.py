"""A manifest that lies apart from its copies; see docs/how-to/manifest.md."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pairs import Run, runner

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e


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
