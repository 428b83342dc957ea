"""Control sessions with the gateways of a fleet that comes up."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from skyplane_gateway.config import Topology

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority


class ControlSession(Protocol):
    """The part of `skyplane_gateway.control.client.ControlClient` that provisioners use."""

    def status(self) -> dict[str, Any]: ...

    def put_topology(self, topology: Topology) -> None: ...

    def renew(self, lease_s: float | None = None) -> None: ...

    def close(self) -> None: ...


#: (host, port, context, expected URI name) -> a session with a gateway.
SessionFactory = Callable[[str, int, ssl.SSLContext, str], ControlSession]


class ControlSessions:
    """One session per gateway, opened on first use with (host, port, node)."""

    def __init__(self, connect: Callable[[str, int, str], ControlSession]) -> None:
        self._connect = connect
        self._sessions: dict[str, ControlSession] = {}

    def get(self, node: str, address: tuple[str, int]) -> ControlSession:
        if node not in self._sessions:
            self._sessions[node] = self._connect(*address, node)
        return self._sessions[node]

    def drop(self, node: str) -> None:
        """Close the session of a gateway that is replaced, if there is one."""
        session = self._sessions.pop(node, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        while self._sessions:
            _, session = self._sessions.popitem()
            session.close()


def open_sessions(authority: Authority, connect: SessionFactory) -> ControlSessions:
    """Control sessions with the gateways of the authority's fleet."""
    context = authority.client_context()

    def open_session(host: str, port: int, node: str) -> ControlSession:
        return connect(host, port, context, authority.expected_uri(node))

    return ControlSessions(open_session)
