"""The folders of clouds have the same files, and the page gives a reason for each other one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CLOUDS: Final = ("aws", "azure", "gcp")


def test_the_page_names_the_files_of_clouds(repository: Path) -> None:
    folder = repository / "src/skyplane_orchestration/provision"
    files = {
        cloud: {path.name for path in (folder / cloud).glob("*.py")} - {"__init__.py"}
        for cloud in CLOUDS
    }
    common = set.intersection(*files.values())
    extras = {f"{cloud}/{name}" for cloud in CLOUDS for name in files[cloud] - common}
    page = (repository / "docs/explanation/architecture.md").read_text()
    section = page.partition("### The folders of clouds")[2].partition("\n## ")[0]
    text, _, table = section.partition("| File |")
    assert set(re.findall(r"`(\w+\.py)`", text)) == common
    assert set(re.findall(r"`(\w+/\w+\.py)`", table)) == extras
