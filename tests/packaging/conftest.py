"""The wheels, each built once from the tracked files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tracked_files(repository: Path) -> list[str]:
    """Paths that git tracks and the working tree has, relative to the repository."""
    if not (repository / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of tracked files")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (repository / name).is_file()]


@pytest.fixture(scope="session")
def wheel(
    repository: Path, tracked_files: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A wheel of the tracked files."""
    return _build(repository, tracked_files, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def fakes_wheel(
    repository: Path, tracked_files: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same of the distribution `strict-clouds`."""
    root = "tests/strict_clouds/"
    names = [name.removeprefix(root) for name in tracked_files if name.startswith(root)]
    return _build(repository / root, names, tmp_path_factory.mktemp("fakes"))


def _build(source: Path, names: list[str], folder: Path) -> Path:
    """A wheel of some files, built in a copy, so that no stale build folder helps."""
    for name in names:
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist"],
        cwd=folder / "tree",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (folder / "dist").glob("*.whl")
    return path
