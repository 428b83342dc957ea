"""Runs the command, as a user does."""

from __future__ import annotations

import subprocess
import sys


def run_command(environment: dict[str, str], *arguments: str) -> None:
    """Print and run one command. Raises SystemExit if it fails."""
    print("$ skyplane-orch", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "skyplane_orchestration.cli", *arguments],
        env=environment,
        check=False,
    )
    if done.returncode:
        sys.exit(done.returncode)
