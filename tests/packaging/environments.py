"""Fresh environments, each with the wheel and what one of its extras brings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

UV = Path(sys.executable).with_name("uv")


def uv(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"UV_SYSTEM_CERTS": "1", **os.environ}
    return subprocess.run(
        [UV, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def make_environment(folder: Path) -> Path:
    """An empty environment; its interpreter."""
    made = uv("venv", "--python", sys.executable, folder)
    assert made.returncode == 0, made.stderr
    return folder / "bin" / "python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install into an environment; skip the test where no package can be had."""
    done = uv("pip", "install", "--python", python, *arguments)
    if done.returncode != 0:
        skip_without_an_index(done.stderr)
    assert done.returncode == 0, done.stderr


def skip_without_an_index(complaint: str) -> None:
    """Skip the test where uv gave up on the network, not on the requirements."""
    if re.search(r"Failed to fetch|error sending request|dns error", complaint):
        pytest.skip(f"the package index cannot be reached: {complaint.strip()[-200:]}")
