"""`dagster dev` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e_dagster.graphql import GraphQl
from tests.ports import free_port

REPOSITORY: Final = Path(__file__).parents[2]


@contextmanager
def dagster_dev(root: Path, definitions: Path, environment: Mapping[str, str]) -> Iterator[GraphQl]:
    """Webserver, daemon and code server of a file; ended with the block.

    Args:
        root: gets `dagster.log`.
        definitions: a file of the repository.
    """
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    command += ["-f", str(definitions), "-d", str(REPOSITORY)]
    with (root / "dagster.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=root
        )
    try:
        yield GraphQl(f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
