"""Grid directories small enough to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

WriteGrid = Callable[[Mapping[str, str]], Path]

#: Two regions, both directions measured.
PAIR = "src,dst,gbps\naws:us-east-1,gcp:us-east1,4.5\ngcp:us-east1,aws:us-east-1,6\n"


@pytest.fixture
def write_grid(tmp_path: Path) -> WriteGrid:
    """Write files into a fresh directory; two measured pairs unless they say otherwise."""

    def write(files: Mapping[str, str]) -> Path:
        directory = tmp_path / "grid"
        directory.mkdir(exist_ok=True)
        for name, text in {"throughput.csv": PAIR, **files}.items():
            (directory / name).write_text(text, encoding="utf-8")
        return directory

    return write
