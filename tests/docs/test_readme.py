"""The README is short, and its two commands run as they stand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.docs.pages import Page

README: Final = Page("README.md")


def test_every_kind_of_block_is_there_and_as_short_as_promised() -> None:
    lengths = [(block.test, len(block.text.splitlines())) for block in README.blocks()]
    promised = [("install", 3), ("shell", 2), ("commands", 2), ("dag", 10), ("asset", 10)]
    assert [length for length in lengths if length[0]] == promised


def test_it_says_in_five_lines_what_it_is() -> None:
    _, said, *_ = README.text.split("\n\n")
    assert len(said.splitlines()) == 5


def test_it_is_read_in_one_go() -> None:
    assert len(README.text.splitlines()) <= 100


def test_commands(repository: Path, tmp_path: Path) -> None:
    """Both as they stand; the environment limits the tests to one file."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTEST_ADDOPTS": "-p no:cacheprovider tests/test_units.py",
        "WORKERS": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", *README.tested("commands")],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    said = done.stdout
    assert done.returncode == 0, said[-4000:] + done.stderr[-4000:]
    assert "0 differences" in said
    assert "left running: 0" in said
    assert " passed" in said
