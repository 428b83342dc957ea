"""Servers written in Go, found or built for tests.

A binary is the one that the program's variable names, else one on the PATH, else one that is built
once with `go` and kept in the user's cache: a few minutes, in a temporary GOPATH. Tests wait for
that no longer than their own time limit allows; `python -m tests.faults.NAME` takes its time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BUILD_S: Final = 240
_START_S: Final = 30
#: For so long a build that failed is not tried again.
_FAILED_S: Final = 600


class Unavailable(Exception):
    """The program is not here; says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program; `module` has its version, `variable` may name a binary."""

    name: str
    module: str
    variable: str

    def binary(self, build_s: float | None = _BUILD_S) -> Path:
        """Find the binary, or build it within so many seconds.

        Raises:
            Unavailable.
        """
        named = os.environ.get(self.variable)
        found = named or shutil.which(self.name)
        if found:
            if not Path(found).is_file():
                raise Unavailable(f"{self.variable} names no file: {found}")
            return Path(found)
        target = cache_folder() / self.name
        make_once(target, self.name, lambda: self._build(target, build_s), build_s)
        return target

    def _build(self, target: Path, build_s: float | None) -> None:
        """Go caches the compiled packages, so a next attempt continues from there."""
        go = shutil.which("go")
        if go is None:
            raise Unavailable(f"there is no {self.name} and no go to build it with")
        prefix = f"{self.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
            subprocess.run(
                [go, "install", self.module],
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
            # Go names it for the last folder of its path.
            made = self.module.partition("@")[0].rpartition("/")[2]
            shutil.move(f"{scratch}/bin/{made}", target)


def cache_folder() -> Path:
    """Where this user's built programs are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "skyplane-orchestration" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_once(target: Path, name: str, make: Callable[[], None], within_s: float | None) -> None:
    """Make a file of the cache, unless it is there.

    Args:
        name: of the program.
        within_s: None to try again after a recent failure.

    Raises:
        Unavailable: a command of `make` fails, takes too long, or did so a while ago.
    """
    failed = target.with_name(f"{target.name}.failed")
    # Test processes run side by side: one makes it, the others wait for it.
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():
            return
        is_recent = failed.is_file() and time.time() - failed.stat().st_mtime < _FAILED_S
        if is_recent and within_s is not None:
            raise Unavailable(f"{name} could not be made a while ago: {failed.read_text()}")
        try:
            make()
        except subprocess.CalledProcessError as error:
            failed.write_text((error.stderr.strip().splitlines() or ["no reason given"])[-1])
            raise Unavailable(f"{name} cannot be made: {failed.read_text()}") from error
        except subprocess.TimeoutExpired as error:
            failed.write_text(f"it takes longer than {within_s:g} s; make it beforehand")
            raise Unavailable(f"{name} was not made: {failed.read_text()}") from error


@contextmanager
def running(
    command: Sequence[str],
    port: int,
    log_file: Path,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    host: str = "127.0.0.1",
) -> Iterator[int]:
    """A server on a port of an address, until the block ends; yields its process id.

    Where `setpriv` is, the server also ends with the thread that called this, however that ends.

    Raises:
        Unavailable: it does not come up.
    """
    setpriv = shutil.which("setpriv")
    bound = (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
    with log_file.open("w+") as log:
        process = subprocess.Popen(
            (*bound, *command), cwd=cwd, env={**os.environ, **environment}, stdout=log, stderr=log
        )
        try:
            _wait_until_up(process, (host, port), log_file)
            yield process.pid
        finally:
            process.terminate()
            process.wait(_START_S)


def _wait_until_up(
    process: subprocess.Popen[bytes], address: tuple[str, int], log_file: Path
) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(address, timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise Unavailable(f"the server does not come up: {log_file.read_text()[-500:]}")
