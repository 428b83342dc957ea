"""Runs the command, as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def run_command(environment: dict[str, str], *arguments: str) -> None:
    """Print and run one command. Raises SystemExit if it fails."""
    _run(environment, arguments, None)


def answer_of_command(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """As `run_command`, with `--json`; what the command has printed."""
    answer: dict[str, Any] = json.loads(
        _run(environment, (*arguments, "--json"), subprocess.PIPE).stdout
    )
    return answer


def _run(
    environment: dict[str, str], arguments: Sequence[str], stdout: int | None
) -> subprocess.CompletedProcess[bytes]:
    print("$ skyplane-orch", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "skyplane_orchestration.cli", *arguments],
        env=environment,
        check=False,
        stdout=stdout,
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done
