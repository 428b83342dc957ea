"""`rclone serve s3`, a third S3 server, for tests: gofakes3 over a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults import go_programs
from tests.faults.go_programs import Unavailable
from tests.faults.tools import RCLONE
from tests.ports import free_port

__all__ = ["KEYS", "LACKS", "Unavailable", "running"]

#: Access key and secret.
KEYS: Final = ("rclone-key", "rclone-secret")
#: Where it falls short of S3 (v1.76.0): keys are paths, and it refuses such a one with a general
#: code; parts have no checksums; a part that is sent again is refused if it differs; of writes at
#: the same time to a new directory some end with InternalError.
LACKS: Final = frozenset(
    {
        "conflict-code",
        "parallel-writes",
        "part-checksums",
        "part-replaced",
        "posix-keys",
        "races",
    }
)


@contextmanager
def running(root: Path) -> Iterator[str]:
    """A server that keeps buckets as directories below `root`, until the block ends.

    Yields its URL. Raises Unavailable: there is none, or it does not come up.
    """
    port = free_port()
    command = [str(RCLONE.binary()), "serve", "s3", str(root), "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", ",".join(KEYS), "--config", "/dev/null", "--vfs-cache-mode", "writes"]
    with go_programs.running(command, port, root.parent / f"{root.name}.log", {}):
        yield f"http://127.0.0.1:{port}"
