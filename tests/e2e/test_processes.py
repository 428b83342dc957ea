"""The end of a program that holds other processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
import time
from tests.e2e.processes import leave_by_sigterm

leave_by_sigterm()
try:
    print("up", flush=True)
    time.sleep(60)
finally:
    print("ended")
"""


def test_sigterm_ends_the_blocks_of_a_program(repository: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], cwd=repository, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.stdout.read() == "ended\n"
    assert process.returncode == 128 + signal.SIGTERM
