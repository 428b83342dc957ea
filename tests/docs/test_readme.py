"""The README is short, and its two commands run before every merge."""

from __future__ import annotations

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


def test_the_merge_gate_runs_the_commands(repository: Path) -> None:
    """They take minutes, so `.ci/run` runs them, beside the tests and not among them."""
    (text,) = README.tested("commands")
    gate = (repository / ".ci" / "run").read_text().splitlines()
    assert {line.partition("#")[0].strip() for line in text.splitlines()} <= set(gate)
