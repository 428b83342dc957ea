"""The folders of clouds have the same files, and the page names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

CLOUDS: Final = ("aws", "azure", "gcp")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_cloud_is_nine_files_and_2000_lines(repository: Path, cloud: str) -> None:
    files = list((repository / "src/skyplane_orchestration/provision" / cloud).rglob("*.py"))
    page = (repository / "docs/explanation/architecture.md").read_text()
    section = page.partition("### The folders of clouds")[2].partition("\n## ")[0]
    assert {path.name for path in files} == set(re.findall(r"`(\w+\.py)`", section))
    assert len(files) <= 9
    assert sum(len(path.read_text().splitlines()) for path in files) <= 2000
