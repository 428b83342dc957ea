"""Azurite, Microsoft's emulator of Azure Blob Storage, for tests.

It checks signatures, preconditions and the CRC64 of bodies. It is the program that
SKYPLANE_TEST_AZURITE names, else one on the PATH, else one that npm installs once into the user's
cache: about a minute. Tests wait for that no longer than their own time limit allows;
`python -m tests.faults.azurite` takes its time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults import go_programs
from tests.faults.go_programs import Unavailable
from tests.ports import free_port

__all__ = ["LACKS", "Server", "Unavailable", "program", "running"]

_PACKAGE: Final = "azurite@3.37.0"
_INSTALL_S: Final = 240

#: Where it falls short of the contract. Azure stages blocks without any upload, so a part of an
#: upload that is over is accepted; it is never committed, and expires after a week. It takes the
#: setting for soft delete, and keeps no deleted blob (3.37).
LACKS: Final = frozenset({"no-such-upload", "soft-delete"})


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
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", _PACKAGE]

    def install() -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=install_s)
        done.touch()

    done = folder / "installed"
    go_programs.make_once(done, "azurite", install, install_s)
    return [node, str(folder / "node_modules/azurite/dist/src/blob/main.js")]


@contextmanager
def running(root: Path, *, host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> Iterator[Server]:
    """A server that keeps blobs in memory until the block ends; its log goes beside `root`.

    `host`, `prefix`: see `versitygw.running`.

    Raises:
        Unavailable: there is none, or it does not come up.
    """
    port = free_port()
    server = Server(f"http://{host}:{port}", "account", "c2VjcmV0LW9mLXRlc3Rz")
    command = [*prefix, *program(), "--blobHost", host, "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    accounts = {"AZURITE_ACCOUNTS": f"{server.account}:{server.account_key}"}
    log_file = root.parent / f"{root.name}.log"
    with go_programs.running(command, port, log_file, accounts, cwd=root, host=host):
        yield server


if __name__ == "__main__":
    print(*program(install_s=None))
