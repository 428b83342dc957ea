"""versitygw, an S3 server of another make than any we were written against, for tests.

Its own files and processes (Apache 2.0; posix back end): it checks signatures, checksums
and preconditions, so it refuses what moto lets pass. The binary is the one that
SKYPLANE_TEST_VERSITYGW names, else one on the PATH, else one that is built once with `go`
and kept in the user's cache: a few minutes, in a temporary GOPATH. Tests wait for that no
longer than their own time limit allows; `python -m tests.faults.versitygw` takes its time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MODULE: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILD_S: Final = 240
_START_S: Final = 20
#: For so long a build that failed is not tried again.
_FAILED_S: Final = 600

#: Where it falls short of S3 (v1.8.0): keys are paths, control characters come back changed
#: in listings, and a completion whose upload is gone is answered with whatever is there.
LACKS: Final = frozenset({"posix-keys", "control-characters", "gone-upload"})


class Unavailable(Exception):
    """There is no versitygw here; says why."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    access_key_id: str
    secret_access_key: str
    pid: int


def binary(build_s: float | None = _BUILD_S) -> Path:
    """Find the binary, or build it within so many seconds.

    Raises:
        Unavailable.
    """
    named = os.environ.get("SKYPLANE_TEST_VERSITYGW")
    found = named or shutil.which("versitygw")
    if found:
        if not Path(found).is_file():
            raise Unavailable(f"SKYPLANE_TEST_VERSITYGW names no file: {found}")
        return Path(found)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "skyplane-orchestration" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    # Test processes run side by side: one builds, the others wait for it.
    with (folder / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built(folder, build_s)


def _built(folder: Path, build_s: float | None) -> Path:
    target, failed = folder / "versitygw", folder / "versitygw.failed"
    if target.is_file():
        return target
    is_recent = failed.is_file() and time.time() - failed.stat().st_mtime < _FAILED_S
    if is_recent and build_s is not None:
        raise Unavailable(f"building versitygw failed a while ago: {failed.read_text()}")
    go = shutil.which("go")
    if go is None:
        raise Unavailable("there is no versitygw and no go to build it with")
    try:
        _build(go, target, build_s)
    except subprocess.CalledProcessError as error:
        failed.write_text((error.stderr.strip().splitlines() or ["no reason given"])[-1])
        raise Unavailable(f"go cannot build versitygw: {failed.read_text()}") from error
    except subprocess.TimeoutExpired as error:
        # Go caches the compiled packages, so the next attempt continues from there.
        failed.write_text(f"it takes longer than {build_s:g} s; build it beforehand")
        raise Unavailable(f"go did not build versitygw: {failed.read_text()}") from error
    return target


def _build(go: str, target: Path, build_s: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="versitygw-", ignore_cleanup_errors=True) as scratch:
        subprocess.run(
            [go, "install", _MODULE],
            env={
                **os.environ,
                "GOPATH": scratch,
                "GOBIN": f"{scratch}/bin",
                "GOFLAGS": "-modcacherw",
            },
            check=True,
            capture_output=True,
            text=True,
            timeout=build_s,
        )
        shutil.move(f"{scratch}/bin/versitygw", target)


@contextmanager
def running(root: Path, *options: str) -> Iterator[Server]:
    """A server that keeps buckets as directories below `root`, until the block ends.

    Args:
        options: of its posix back end, for example `--data-integrity-etag`.

    Raises:
        Unavailable: there is none, or it does not come up (its file system may lack extended
            attributes).
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    access_key_id, secret_access_key = "versity-key", "versity-secret"
    command = [str(binary()), "--port", address, "--keep-alive", "--quiet", "posix"]
    with (root.parent / f"{root.name}.log").open("w+") as log:
        process = subprocess.Popen(
            [*command, *options, str(root)],
            env={
                **os.environ,
                "ROOT_ACCESS_KEY_ID": access_key_id,
                "ROOT_SECRET_ACCESS_KEY": secret_access_key,
            },
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_up(process, address, log.name)
            yield Server(f"http://{address}", access_key_id, secret_access_key, process.pid)
        finally:
            process.terminate()
            process.wait(_START_S)


def _wait_until_up(process: subprocess.Popen[bytes], address: str, log: str) -> None:
    host, _, port = address.partition(":")
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise Unavailable(f"versitygw does not come up: {Path(log).read_text()[-500:]}")


if __name__ == "__main__":
    print(binary(build_s=None))
