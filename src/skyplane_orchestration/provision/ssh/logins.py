"""Logs in to several hosts at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.ssh.containers import ContainerMachine
from skyplane_orchestration.provision.ssh.hosts import SshHost
from skyplane_orchestration.provision.ssh.machine import RemoteMachine

if TYPE_CHECKING:
    from skyplane_orchestration.provision.ssh.connection import AgentSession

_MOST_LOGINS: Final = 16


@dataclass(frozen=True, slots=True)
class OpenHost:
    """A host that this process is logged in to."""

    host: SshHost
    machine: RemoteMachine
    root: RunRoot

    @property
    def container_machine(self) -> ContainerMachine:
        """The machine of a host with an image."""
        assert isinstance(self.machine, ContainerMachine)
        return self.machine


@dataclass(frozen=True, slots=True)
class Login:
    """A login that is under way, or has ended."""

    host: SshHost
    session: Future[AgentSession]

    def opened(self) -> OpenHost:
        """Wait for its end. Raises the errors of `AgentSession`."""
        kind = ContainerMachine if self.host.image else RemoteMachine
        machine = kind(self.host.name, self.session.result().call)
        path = Path(self.host.directory) if self.host.directory else Path(machine.default_root())
        return OpenHost(self.host, machine, RunRoot(path, machine))

    def close(self) -> None:
        if self.session.exception() is None:
            self.session.result().close()


@contextlib.contextmanager
def log_in(hosts: Sequence[SshHost], timeout_s: float) -> Iterator[list[Login]]:
    """Begin to log in to hosts, sorted by name; the sessions end with the block.

    Raises MissingExtra.
    """
    try:
        from skyplane_orchestration.provision.ssh.connection import AgentSession
    except ModuleNotFoundError as error:
        raise MissingExtra.of("the provisioner 'ssh'", "ssh") from error

    ordered = sorted(hosts, key=lambda host: (host.name, host.directory))
    with ThreadPoolExecutor(_MOST_LOGINS) as pool, contextlib.ExitStack() as stack:
        logins = [Login(host, pool.submit(AgentSession, host, timeout_s)) for host in ordered]
        # A login that is under way when another fails, or at an interruption, is closed too.
        for login in logins:
            stack.callback(login.close)
        yield logins
