"""The logins of a process: one for each host, kept for later requests."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.ssh.hosts import SshHost

if TYPE_CHECKING:
    from skyplane_orchestration.provision.ssh.connection import HostSession


class HostSessions:
    """Logs in to a host at its first request, and again after its connection has broken."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._locks: dict[SshHost, threading.Lock] = {}
        self._open: dict[SshHost, HostSession] = {}
        weakref.finalize(self, _close_all, self._open)

    def of(self, host: SshHost) -> HostSession:
        """Raises the errors of `HostSession`, and MissingExtra."""
        try:
            from skyplane_orchestration.provision.ssh.connection import HostSession
        except ImportError as error:
            raise MissingExtra.of("the provisioner 'ssh'", "ssh") from error
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        with lock:
            known = self._open.get(host)
            if known is None or not known.is_open:
                self._open[host] = known = HostSession(host, self._timeout_s)
            return known


def _close_all(sessions: dict[SshHost, HostSession]) -> None:
    for session in sessions.values():
        session.close()
