"""The README is short, and its two commands run as they stand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.docs.tested_blocks import blocks_of_page


@pytest.fixture(scope="module")
def blocks() -> dict[str, list[str]]:
    return blocks_of_page("README.md")


def test_every_kind_of_block_is_there_and_as_short_as_promised(
    blocks: dict[str, list[str]],
) -> None:
    lengths = {name: [len(text.splitlines()) for text in texts] for name, texts in blocks.items()}
    shortest = {"install": 3, "shell": 2, "commands": 2, "python": 5, "dag": 10, "asset": 10}
    assert lengths == {name: [lines] for name, lines in shortest.items()}


def test_it_says_in_five_lines_what_it_is(repository: Path) -> None:
    _, said, *_ = (repository / "README.md").read_text().split("\n\n")
    assert len(said.splitlines()) == 5


def test_it_is_read_in_one_go(repository: Path) -> None:
    assert len((repository / "README.md").read_text().splitlines()) <= 100


def test_commands(blocks: dict[str, list[str]], repository: Path, tmp_path: Path) -> None:
    """Both as they stand; the environment limits the tests to one file."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTEST_ADDOPTS": "-p no:cacheprovider tests/test_units.py",
        "WORKERS": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", blocks["commands"][0]],
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
