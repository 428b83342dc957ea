"""`mount` where it cannot mount: one line, status 2, and nothing has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.storage import mount


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the PATH, of a machine with FUSE."""
    folder = tmp_path / "programs"
    folder.mkdir()
    add(folder, "fusermount3")
    (tmp_path / "device").touch()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(mount, "_DEVICE", tmp_path / "device")
    return folder


def add(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\nexit 7\n")
    (folder / name).chmod(0o755)


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["mount", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("url", "tool"),
    [("s3://b/x", "mount-s3"), ("gs://b/x", "gcsfuse"), ("az://a/b/x", "blobfuse2")],
)
def test_it_says_what_to_install(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, tool: str
) -> None:
    (tmp_path / "empty").mkdir()
    line = said(capsys, url, tmp_path / "empty")
    assert f"rclone or {tool} is not on the PATH; install rclone, https://rclone.org" in line


def test_a_place_of_files_is_refused(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = said(capsys, f"file://{tmp_path}", tmp_path)
    assert f"{tmp_path} is a folder of this machine; use it as it is" in line


def test_a_folder_that_is_not_there_or_not_empty(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(programs, "rclone")
    line = said(capsys, "s3://bucket/", tmp_path / "none")
    assert "none cannot be used (No such file or directory); give an empty folder" in line
    assert "is not empty" in said(capsys, "s3://bucket/", tmp_path)
    (tmp_path / "file").touch()
    assert "(Not a directory)" in said(capsys, "s3://bucket/", tmp_path / "file")


def test_a_machine_without_fuse(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (programs / "fusermount3").unlink()
    assert "install the package fuse3" in said(capsys, "s3://bucket/", tmp_path)
    (tmp_path / "device").unlink()
    assert "there is no" in said(capsys, "s3://bucket/", tmp_path)
