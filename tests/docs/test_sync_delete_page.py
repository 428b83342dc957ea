"""The commands of docs/how-to/sync-delete.md print and do what the page says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from tests.docs.pages import Page

from skyplane_orchestration.cli.main import main

PAGE: Final = Page("docs/how-to/sync-delete.md")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name: a table cuts long paths."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("tree/a.csv", "tree/b.csv", "copy/a.csv", "copy/old.csv"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("x\n")
            os.utime(place / name, (1e9, 1e9))
        monkeypatch.chdir(place)
        yield place


def words_of(name: str) -> list[str]:
    (text,) = PAGE.tested(name)
    program, *words = shlex.split(text)
    assert program == "skyplane-orch"
    return words


def test_the_dry_run_prints_the_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of("dry_run")) == 0
    said = capsys.readouterr().out.replace(str(here), "").splitlines()
    (wanted,) = PAGE.tested("dry_run_says")
    # Columns are as wide as the longest path.
    assert [line.split() for line in said] == [line.split() for line in wanted.splitlines()]
    assert (here / "copy/old.csv").exists()


def test_a_higher_limit_deletes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "copy/b.csv").write_text("x\n")
    (here / "copy/a.csv").rename(here / "copy/older.csv")
    (here / "copy/b.csv").rename(here / "copy/oldest.csv")
    (here / "tree/a.csv").unlink()
    (here / "copy/b.csv").write_text("x\n")
    words = words_of("limit")
    assert main(words[:-2]) == 2
    assert "--max-delete 50% allows 2; nothing was deleted" in capsys.readouterr().err
    assert main(words) == 0
    assert "3 objects deleted at the destination" in capsys.readouterr().out
    assert sorted(path.name for path in (here / "copy").iterdir()) == [".skyplane", "b.csv"]
