"""Control sessions with the gateways of a fleet that comes up; connects them along its routes."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from skyplane_gateway.config import Route, Topology
from skyplane_orchestration.errors import (
    GatewayError,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.provisioner import AuthorityOf

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name.
_NO_CHECK_TIME: Final = 0x200000
#: Gateways of a fleet that are asked: each may take some seconds not to answer.
_ASKED: Final = 3


class ControlSession(Protocol):
    """The part of `skyplane_gateway.control.client.ControlClient` that provisioners use."""

    def status(self) -> dict[str, Any]: ...

    def put_topology(self, topology: Topology) -> None: ...

    def put_plan(self, plan: Mapping[str, Any]) -> None: ...

    def plan(self) -> dict[str, Any]: ...

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

    def is_usable(self, node: str, address: tuple[str, int], start_within_s: float) -> bool:
        """Whether a gateway takes a new transfer; it waits for it for the whole time again.

        Raises NotAuthorised.
        """
        try:
            session = self.get(node, address)
            # One that drains is in a teardown, perhaps one that was interrupted.
            if session.status().get("state") != "draining":
                session.renew(start_within_s)
                return True
        except NotAuthorised:
            raise
        except GatewayError as error:
            log.debug("%s is not usable: %s", node, error)
        self.drop(node)
        return False

    def drop(self, node: str) -> None:
        """Close the session of a gateway that is replaced, if there is one."""
        session = self._sessions.pop(node, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        while self._sessions:
            _, session = self._sessions.popitem()
            session.close()


def open_sessions(
    authority: Authority, connect: SessionFactory, *, at_any_time: bool = False
) -> ControlSessions:
    """Control sessions with the gateways of the authority's fleet.

    `at_any_time`: their certificates may have expired by the clock of this machine.
    """
    context = authority.client_context()
    if at_any_time:
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)

    def open_session(host: str, port: int, node: str) -> ControlSession:
        return connect(host, port, context, authority.expected_uri(node))

    return ControlSessions(open_session)


def is_living(
    fleet_key: str,
    gateways: Iterable[tuple[str, tuple[str, int]]],
    authority_of: AuthorityOf | None,
    connect: SessionFactory,
) -> bool:
    """Whether one of the first gateways (node, address) answers that its lease goes on.

    A gateway counts by a clock that no setting of the time changes.
    """
    if authority_of is None:
        return False
    try:
        with closing(open_sessions(authority_of(fleet_key), connect, at_any_time=True)) as sessions:
            for node, address in islice(gateways, _ASKED):
                with suppress(GatewayError):
                    if sessions.get(node, address).status().get("lease_remaining_s", 0.0) > 0:
                        return True
    except SkyplaneError as error:
        log.warning("the gateways of fleet %s cannot be asked: %s", fleet_key, error)
    return False


class StartupDeadline(Protocol):
    """The deadline of one `ensure`."""

    def pause(self, node: str, what: str) -> None:
        """Sleep until the next poll. Raises ProvisionFailed for `node` after the deadline."""

    def failure(self, node: str, what: str) -> ProvisionFailed:
        """The error of a gateway, with the end of its log."""


def topology_of(
    routes: Sequence[Route], handles: Mapping[str, GatewayHandle], dialer: GatewayHandle
) -> Topology:
    """The topology of gateways, by the addresses that one of them dials."""
    return Topology(
        routes=tuple(routes),
        data_addresses={node: handle.data_for(dialer) for node, handle in handles.items()},
        control_addresses={node: handle.control for node, handle in handles.items()},
    )


def send_topology(
    routes: Sequence[Route],
    handles: Mapping[str, GatewayHandle],
    sessions: ControlSessions,
    deadline: StartupDeadline,
) -> None:
    """Give all gateways their topology. Raises ProvisionFailed, NotAuthorised."""
    for handle in handles.values():
        topology = topology_of(routes, handles, handle)
        try:
            sessions.get(handle.node, handle.control).put_topology(topology)
        except NotAuthorised:
            raise
        except GatewayError as error:
            raise deadline.failure(handle.node, f"did not take its topology: {error}") from error


def wait_connected(
    handles: Mapping[str, GatewayHandle],
    sessions: ControlSessions,
    deadline: StartupDeadline,
    alive: Callable[[], Collection[str]],
) -> None:
    """Wait until each gateway is connected with its neighbours.

    Args:
        alive: the nodes whose gateways run; called once for each poll.

    Raises ProvisionFailed: one ends, or does not connect in time. NotAuthorised.
    """
    waiting = list(handles)
    while waiting:
        # Before the calls: a gateway that answers has been alive.
        running = alive()
        waiting = [node for node in waiting if not _is_connected(handles[node], sessions)]
        for node in waiting:
            if node not in running:
                raise deadline.failure(node, "ended")
        if waiting:
            deadline.pause(waiting[0], "did not connect to its neighbours")


def _is_connected(handle: GatewayHandle, sessions: ControlSessions) -> bool:
    try:
        return bool(sessions.get(handle.node, handle.control).status()["connected"])
    except NotAuthorised:
        raise
    except GatewayError:
        return False
