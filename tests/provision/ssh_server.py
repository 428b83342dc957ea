"""A real sshd on loopback addresses, for an account of its own where the tests run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from skyplane_orchestration.provision.ssh.options import SshHost

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
ADDRESSES = ("127.77.1.1", "127.77.1.2")

_CONFIGURATION = """
Port {port}
ListenAddress {first}
ListenAddress {second}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
PidFile none
"""


class Unavailable(Exception):
    """This machine cannot run the server; the text says why."""


@dataclass(frozen=True)
class Server:
    """Answers on both of `ADDRESSES`.

    Args:
        folder: readable for the account; keys, and the hosts' directories in `hosts/`.
        user: the account that it lets in.
        python: an interpreter that the account may run.
        modules: folder with the gateway's requirements for that interpreter.
    """

    folder: Path
    port: int
    user: str
    python: str
    modules: str

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text()

    def host(self, number: int, folder: Path, **changes: Any) -> SshHost:
        """Host 0 or 1, with its fleets in `folder`."""
        values: dict[str, Any] = {
            "address": ADDRESSES[number],
            "port": self.port,
            "user": self.user,
            "key_file": str(self.folder / "user_key"),
            "host_key": self.host_key,
            "python": self.python,
            "directory": str(folder / f"host-{number}"),
            **changes,
        }
        return SshHost(**values)

    def make_folder(self) -> Path:
        """A folder of the account for one test."""
        folder = Path(tempfile.mkdtemp(dir=self.folder / "hosts"))
        entry = pwd.getpwnam(self.user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        return folder


@contextlib.contextmanager
def running_or_skip() -> Iterator[Server]:
    """As `running`; skips the test, with the reason, where no server can run."""
    try:
        with running() as server:
            yield server
    except Unavailable as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Start a server; its account and all its files are gone afterwards. Raises Unavailable."""
    if SSHD is None:
        raise Unavailable("there is no sshd here (Debian's package openssh-server)")
    # Not below the tests' own folder, which no other account may enter.
    folder = Path(tempfile.mkdtemp(prefix="skyplane-sshd-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        folder.chmod(0o755)
        (folder / "hosts").mkdir()
        user = stack.enter_context(_account())
        for name in ("host_key", "user_key", "other_key"):
            make_key(folder / name)
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
        port = free_port(ADDRESSES[0])
        (folder / "sshd_config").write_text(
            _CONFIGURATION.format(port=port, folder=folder, first=ADDRESSES[0], second=ADDRESSES[1])
        )
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stderr=(folder / "sshd.log").open("wb"),
        )
        stack.callback(server.wait)
        stack.callback(server.terminate)
        _await(server, port, folder / "sshd.log")
        python, modules = _interpreter(folder)
        yield Server(folder, port, user, python, modules)


def write_program(path: Path, text: str) -> None:
    """A program is written once and appears whole, since a host may start it at any moment."""
    if not path.is_file():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(path)


def make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)


@contextlib.contextmanager
def _account() -> Iterator[str]:
    if os.geteuid() != 0:
        yield pwd.getpwuid(os.geteuid()).pw_name
        return
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's sshd wants it.
    name = f"skyplane{secrets.token_hex(4)}"
    # `*` is a password that nobody has, and unlike `!` does not lock the account.
    made = ["useradd", "-M", "-N", "-d", "/nonexistent", "-s", "/bin/sh", "-p", "*", name]
    result = subprocess.run(made, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Unavailable(f"no account can be made: {result.stderr.strip()}")
    try:
        yield name
    finally:
        # By force: ended processes that nobody has waited for yet count as a login.
        subprocess.run(["userdel", "-f", name], check=True, capture_output=True)


def _interpreter(folder: Path) -> tuple[str, str]:
    """A Python of this version that any account may run, and its modules."""
    if os.geteuid() != 0:
        return sys.executable, ""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    public = shutil.which(version, path="/usr/local/bin:/usr/bin")
    if public is None:
        raise Unavailable(f"no {version} here that other accounts may run")
    modules = str(Path(sys.prefix) / "lib" / version / "site-packages")
    program = folder / "python"
    write_program(program, f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{modules}" exec {public} "$@"\n')
    return str(program), modules


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    while server.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((ADDRESSES[1], port), timeout=10.0).close()
            return
    raise Unavailable(f"sshd does not start: {log.read_text().strip()}")
