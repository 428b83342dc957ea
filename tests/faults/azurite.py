"""Azurite, Microsoft's emulator of Azure Blob Storage, for tests.

It checks signatures, preconditions and the CRC64 of bodies. It is the program that
SKYPLANE_TEST_AZURITE names, else one on the PATH, else one that npm installs once into the user's
cache: about a minute. Tests wait for that no longer than their own time limit allows;
`python -m tests.faults.azurite` takes its time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PACKAGE: Final = "azurite@3.37.0"
_INSTALL_S: Final = 240
_START_S: Final = 30
#: For so long an installation that failed is not tried again.
_FAILED_S: Final = 600

#: Where it falls short of the contract. Azure stages blocks without any upload, so a part of an
#: upload that is over is accepted; it is never committed, and expires after a week. It takes the
#: setting for soft delete, and keeps no deleted blob (3.37).
LACKS: Final = frozenset({"no-such-upload", "soft-delete"})


class Unavailable(Exception):
    """There is no Azurite here; says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """The account is one of the server's own; the key is its secret, in base64."""

    url: str
    account: str
    account_key: str


def program(install_s: float | None = _INSTALL_S) -> list[str]:
    """The beginning of its command line, installed within so many seconds if need be.

    Raises:
        Unavailable.
    """
    named = os.environ.get("SKYPLANE_TEST_AZURITE") or shutil.which("azurite-blob")
    if named:
        if not Path(named).is_file():
            raise Unavailable(f"SKYPLANE_TEST_AZURITE names no file: {named}")
        return [named]
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("there is no azurite-blob, and no node and npm to install it with")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "skyplane-orchestration" / _PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    # Test processes run side by side: one installs, the others wait for it.
    with (folder.parent / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [node, str(_installed(npm, folder, install_s))]


def _installed(npm: str, folder: Path, install_s: float | None) -> Path:
    script = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    done, failed = folder / "installed", folder / "failed"
    if done.is_file():
        return script
    is_recent = failed.is_file() and time.time() - failed.stat().st_mtime < _FAILED_S
    if is_recent and install_s is not None:
        raise Unavailable(f"installing azurite failed a while ago: {failed.read_text()}")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", _PACKAGE]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=install_s)
    except subprocess.CalledProcessError as error:
        failed.write_text((error.stderr.strip().splitlines() or ["no reason given"])[-1])
        raise Unavailable(f"npm cannot install azurite: {failed.read_text()}") from error
    except subprocess.TimeoutExpired as error:
        failed.write_text(f"it takes longer than {install_s:g} s; install it beforehand")
        raise Unavailable(f"npm did not install azurite: {failed.read_text()}") from error
    done.touch()
    return script


@contextmanager
def running(root: Path) -> Iterator[Server]:
    """A server that keeps blobs in memory until the block ends; its log goes beside `root`.

    Raises:
        Unavailable: there is none, or it does not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", "account", "c2VjcmV0LW9mLXRlc3Rz")
    command = [*program(), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    with (root.parent / f"{root.name}.log").open("w+") as log:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{server.account}:{server.account_key}"},
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_up(process, port, log.name)
            yield server
        finally:
            process.terminate()
            process.wait(_START_S)


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: str) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise Unavailable(f"azurite does not come up: {Path(log).read_text()[-500:]}")


if __name__ == "__main__":
    print(*program(install_s=None))
