"""Control sessions with the gateways of a fleet that comes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from skyplane_gateway.config import Topology


class ControlSession(Protocol):
    """The part of `skyplane_gateway.control.client.ControlClient` that provisioners use."""

    def status(self) -> dict[str, Any]: ...

    def put_topology(self, topology: Topology) -> None: ...

    def renew(self, lease_s: float | None = None) -> None: ...

    def close(self) -> None: ...


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
        """Close the session of a gateway that is replaced: its successor has another port."""
        self._sessions.pop(node).close()

    def close(self) -> None:
        while self._sessions:
            _, session = self._sessions.popitem()
            session.close()
