"""Connects the gateways of a fleet along its routes, for every provisioner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from skyplane_gateway.config import Route, Topology
from skyplane_orchestration.errors import GatewayError, NotAuthorised, ProvisionFailed
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.control_sessions import ControlSessions


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
