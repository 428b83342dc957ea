"""Connects started gateways: sends the topology and waits until all connections are open."""

from __future__ import annotations

import json

from skyplane_gateway.config import Route, Topology
from skyplane_orchestration.errors import GatewayError, NotAuthorised
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.control_sessions import ControlSessions
from skyplane_orchestration.provision.local.machine import LocalMachine
from skyplane_orchestration.provision.local.run_directory import FleetDirectory
from skyplane_orchestration.provision.local.startup import StartupDeadline


def connect_gateways(
    handles: dict[str, GatewayHandle],
    routes: tuple[Route, ...],
    *,
    is_changed: bool,
    machine: LocalMachine,
    directory: FleetDirectory,
    sessions: ControlSessions,
    deadline: StartupDeadline,
) -> None:
    """Connect the gateways along their routes; `is_changed`: a gateway was started.

    Raises:
        ProvisionFailed: a gateway refuses the topology, ends, or does not connect in time.
        NotAuthorised: a gateway has another fleet secret.
    """
    topology = Topology(
        routes=routes,
        data_addresses={node: handle.data for node, handle in handles.items()},
        control_addresses={node: handle.control for node, handle in handles.items()},
    )
    document = json.loads(json.dumps(topology.to_dict()))
    # An unchanged fleet may have a transfer in progress: its topology stays.
    if is_changed or directory.read_topology() != document:
        for handle in handles.values():
            _send(topology, handle, sessions, deadline)
        directory.write_topology(document)
    waiting = list(handles)
    while waiting:
        alive = {process.node for process in machine.processes_of(directory)}
        waiting = [node for node in waiting if not _is_connected(handles[node], sessions)]
        for node in waiting:
            if node not in alive:
                raise deadline.failure(node, "ended")
        if waiting:
            deadline.pause(waiting[0], "did not connect to its neighbours")


def _send(
    topology: Topology, handle: GatewayHandle, sessions: ControlSessions, deadline: StartupDeadline
) -> None:
    try:
        sessions.get(handle.node, handle.control).put_topology(topology)
    except NotAuthorised:
        raise
    except GatewayError as error:
        raise deadline.failure(handle.node, f"did not take its topology: {error}") from error


def _is_connected(handle: GatewayHandle, sessions: ControlSessions) -> bool:
    try:
        return bool(sessions.get(handle.node, handle.control).status()["connected"])
    except NotAuthorised:
        raise
    except GatewayError:
        return False
