"""Every file of `changes/` reaches the changelog, since towncrier passes over unknown kinds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]


def test_every_change_has_a_kind_that_the_release_takes() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in settings["type"]}
    changes = set((REPOSITORY / "changes").iterdir())
    taken = {path for kind in kinds for path in (REPOSITORY / "changes").glob(f"*.{kind}.md")}
    assert changes - taken == {REPOSITORY / "changes" / "template.md"}
