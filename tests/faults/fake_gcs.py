"""fake-gcs-server, an emulator of Google Cloud Storage (BSD), for tests; keeps objects in memory.

`go_programs` says how it is found.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import requests
from tests.faults import go_programs
from tests.faults.go_programs import Unavailable
from tests.ports import free_port

__all__ = ["LACKS", "Unavailable", "binary", "create_bucket", "running"]

_PROGRAM: Final = go_programs.Program(
    "fake-gcs-server",
    "github.com/fsouza/fake-gcs-server@v1.56.1",
    "SKYPLANE_TEST_FAKE_GCS_SERVER",
)
binary = _PROGRAM.binary

#: Where it falls short of the service (v1.56.1), or where the service itself differs from S3.
LACKS: Final = frozenset(
    {
        # It ignores ifGenerationMatch of a delete.
        "if-match-on-delete",
        # It ignores ifGenerationMatch of a compose request.
        "if-match-on-completion",
        "if-absent-on-completion",
        # Google's own rule: no line breaks in names.
        "newline",
        # Google's own rule: no object is named `.` or `..`.
        "dot-names",
    }
)


@contextmanager
def running(
    log_file: Path,
    *,
    logs_requests: bool = False,
    host: str = "127.0.0.1",
    prefix: Sequence[str] = (),
) -> Iterator[str]:
    """A server until the block ends; yields its URL. `host`, `prefix`: see `versitygw.running`.

    Raises:
        Unavailable: there is none, or it does not come up.
    """
    port = free_port()
    command = [*prefix, str(binary()), "-scheme", "http", "-backend", "memory"]
    command += ["-log-level", "info" if logs_requests else "warn"]
    # A public host without a port stands for all ports, also that of a proxy.
    command += ["-host", host, "-port", str(port), "-public-host", host]
    with go_programs.running(command, port, log_file, {}, host=host):
        yield f"http://{host}:{port}"


def create_bucket(url: str, name: str = "") -> str:
    """Make a bucket; returns its name."""
    name = name or f"bucket-{uuid.uuid4().hex[:12]}"
    answer = requests.post(f"{url}/storage/v1/b?project=test", json={"name": name}, timeout=10)
    answer.raise_for_status()
    return name


if __name__ == "__main__":
    print(binary(build_s=None))
