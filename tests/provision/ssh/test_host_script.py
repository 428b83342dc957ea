"""The program that a host runs for each request."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skyplane_orchestration.provision.ssh import host_script

_WORKERS = 8


def test_workers_that_pin_at_once_read_one_whole_key(tmp_path: Path) -> None:
    """A key that another worker is about to write is never read as an empty one."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        for attempt in range(100):
            directory = tmp_path / str(attempt)
            directory.mkdir()
            barrier = threading.Barrier(_WORKERS)

            def pin(number: int, directory: Path = directory) -> object:
                barrier.wait()  # noqa: B023 - of this attempt
                request = {"path": str(directory), "key_id": f"{number:040}"}
                return host_script.pin(request, io.BytesIO())

            pinned = set(pool.map(pin, range(_WORKERS)))
            assert len(pinned) == 1
            assert len(str(pinned.pop())) == 40
            assert [path.name for path in directory.iterdir()] == ["key"]
