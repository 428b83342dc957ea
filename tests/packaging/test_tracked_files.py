"""No tracked file knows the machine it was written on or where packages come from."""

from __future__ import annotations

from pathlib import Path

import pytest

# In two halves, so that this file does not find itself.
FORBIDDEN = [
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/tmp/bri" + "ef",
    "pypi" + ".org",
    "python" + "hosted",
    "registry.npm" + "js",
    "proxy.gol" + "ang",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_no_tracked_file_contains(repository: Path, tracked_files: list[str], text: str) -> None:
    needle = text.encode()
    found = [name for name in tracked_files if needle in (repository / name).read_bytes()]
    assert not found
