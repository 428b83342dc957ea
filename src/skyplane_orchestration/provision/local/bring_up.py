"""Brings one fleet up: adopts gateways that run, starts missing ones, connects all."""

from __future__ import annotations

import logging
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import DEFAULT_STORE_THREADS, Route, Topology
from skyplane_orchestration.errors import (
    GatewayDraining,
    GatewayError,
    NotAuthorised,
    ProvisionFailed,
    TeardownIncomplete,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.base import FleetSpec
from skyplane_orchestration.provision.control_sessions import ControlSessions
from skyplane_orchestration.provision.local import launch, processes
from skyplane_orchestration.provision.local.machine import LocalMachine
from skyplane_orchestration.provision.local.processes import GatewayProcess
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    FleetMeta,
    GatewayFiles,
)
from skyplane_orchestration.provision.routes import build_routes, connections_of, neighbours
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

_POLL_S: Final = 0.005
_LOG_TAIL_BYTES: Final = 4096

log = logging.getLogger(__name__)

#: Polls of the files of starting gateways per scan of all processes, which costs more.
_POLLS_PER_SCAN: Final = 40


def bring_up(
    spec: FleetSpec,
    meta: FleetMeta,
    nodes: dict[str, tuple[str, ...]],
    directory: FleetDirectory,
    authority: Authority,
    machine: LocalMachine,
) -> tuple[tuple[GatewayHandle, ...], tuple[Route, ...]]:
    """Bring up a fleet whose lock the caller holds; its gateways and routes.

    An error or an interruption ends the gateways that this call has started. `nodes` maps a
    region tag to the wanted gateways.
    """
    attempt = _BringUp(spec, meta, nodes, directory, authority, machine)
    try:
        return attempt.run()
    except BaseException:
        attempt.undo()
        raise


@dataclass
class _BringUp:
    spec: FleetSpec
    meta: FleetMeta
    nodes: dict[str, tuple[str, ...]]
    directory: FleetDirectory
    authority: Authority
    machine: LocalMachine

    def __post_init__(self) -> None:
        self._region_of = {node: region for region, group in self.nodes.items() for node in group}
        self._neighbours: dict[str, frozenset[str]] = {}
        self._adopted: set[str] = set()
        self._started: set[Path] = set()
        self._launchers: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> tuple[tuple[GatewayHandle, ...], tuple[Route, ...]]:
        options = self.machine.options
        routes = build_routes(self.spec.plan, self.nodes)
        self._neighbours = neighbours(routes)
        store_threads = options.gateway_settings.get("store_threads", DEFAULT_STORE_THREADS)
        launch.require_open_files(max(connections_of(routes).values()), store_threads)
        with closing(self.machine.sessions(self.authority)) as sessions:
            self._adopt(sessions)
            self._stop_others()
            missing = [node for node in self._region_of if node not in self._adopted]
            found = counted(len(self._adopted), "gateway")
            log.info("fleet %s: %s found running, %d to start", self.spec.key, found, len(missing))
            deadline = _StartupDeadline(self.directory, options.ready_timeout_s, self.machine.clock)
            with timed(f"provision: starting {counted(len(missing), 'gateway')}"):
                for node in missing:
                    self._start(node)
                self._wait_until_ready(missing, deadline)
                handles = {node: self._handle(node, deadline) for node in self._region_of}
            with timed("provision: connecting them"):
                _connect(
                    handles,
                    routes,
                    is_changed=bool(missing),
                    machine=self.machine,
                    directory=self.directory,
                    sessions=sessions,
                    deadline=deadline,
                )
        return tuple(handles.values()), routes

    def undo(self) -> None:
        """End what `run` has started; delete an empty directory. Raises TeardownIncomplete."""
        left = self.machine.stop(
            lambda: [process for process in self._running() if process.directory in self._started]
        )
        for launcher in self._launchers.values():
            launcher.poll()
        if left:
            raise TeardownIncomplete(
                f"fleet {self.spec.key} did not come up and these processes cannot be ended:"
                f" {processes.names_of(left)}"
            )
        if not self._running():
            self.directory.remove()

    def _running(self) -> tuple[GatewayProcess, ...]:
        return self.machine.processes_of(self.directory)

    # -- gateways that run

    def _adopt(self, sessions: ControlSessions) -> None:
        running = {process.directory for process in self._running()}
        for node in self._region_of:
            files = self.directory.gateway(node)
            if files.directory in running and self._is_usable(node, files, sessions):
                self._adopted.add(node)

    def _is_usable(self, node: str, files: GatewayFiles, sessions: ControlSessions) -> bool:
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            return False
        if not self._neighbours[node] <= set(config.hello_keys_hex):
            return False  # It was started for another plan and lacks keys of its neighbours.
        session = sessions.get(node, (config.control_host, ports[0]))
        try:
            if session.status().get("state") == "draining":
                # A teardown is in progress, or was interrupted.
                raise GatewayDraining(f"{node} takes no new transfer")
            # The gateway waits for its transfer for the whole time again.
            session.renew(self.spec.times.start_within_s)
        except NotAuthorised:
            raise
        except GatewayError:
            sessions.drop(node)
            return False
        return True

    def _stop_others(self) -> None:
        """End gateways that do not respond, never became ready, or are not in the plan."""
        adopted = {self.directory.gateway(node).directory for node in self._adopted}
        left = self.machine.stop(
            lambda: [process for process in self._running() if process.directory not in adopted]
        )
        if left:
            raise ProvisionFailed(
                "gateways that do not respond cannot be ended either: pids "
                + ", ".join(str(process.pid) for process in left)
            )

    # -- missing gateways

    def _start(self, node: str) -> None:
        region, plan, options = self._region_of[node], self.spec.plan, self.machine.options
        files = self.directory.gateway(node)
        launch.write_files(
            files,
            self.spec,
            self.authority,
            node=node,
            address=options.address(region),
            peers=self._neighbours[node],
            hard_end_unix_s=self.meta.hard_end_unix_s,
            now_unix_s=self.machine.clock.wall(),
            settings=options.gateway_settings,
        )
        # Noted before the start, so that an interruption in between is undone too.
        self._started.add(files.directory)
        try:
            self._launchers[node] = launch.start(
                files,
                fleet_key=self.spec.key,
                command_line=options.command_line(region),
                is_end=region in (plan.src, plan.dst),
            )
        except OSError as error:
            raise ProvisionFailed(
                f"gateway {node} cannot be started: {error}; check launch_prefix and python"
            ) from error

    def _wait_until_ready(self, missing: list[str], deadline: _StartupDeadline) -> None:
        waiting = list(missing)
        polls = 0
        while waiting:
            polls += 1
            # The order matters: the scan finds a gateway once its launcher has exited, and a
            # gateway that the scan does not find may have written its ready file before.
            launched = {node for node in waiting if self._has_launched(node, deadline)}
            is_scan_due = polls % _POLLS_PER_SCAN == 0
            alive = {process.node for process in self._running()} if is_scan_due else launched
            waiting = [
                node
                for node in waiting
                if node not in launched or self.directory.gateway(node).read_ports() is None
            ]
            for node in waiting:
                if node in launched and node not in alive:
                    raise deadline.failure(node, "ended")
            if waiting:
                deadline.pause(waiting[0], "did not become ready")

    def _has_launched(self, node: str, deadline: _StartupDeadline) -> bool:
        status = self._launchers[node].poll()
        if status:
            raise deadline.failure(node, f"exited with status {status}")
        return status is not None

    def _handle(self, node: str, deadline: _StartupDeadline) -> GatewayHandle:
        from skyplane_orchestration.security.authority import fingerprint_of

        files = self.directory.gateway(node)
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            raise deadline.failure(node, "has lost its files")
        return GatewayHandle(
            node=node,
            region=self._region_of[node],
            control=(config.control_host, ports[0]),
            data=(config.data_host, ports[1]),
            fingerprint=fingerprint_of(files.certificate_path.read_text(encoding="ascii")),
            details={"pid": str(ports[2]), "directory": str(files.directory)},
        )


def _connect(
    handles: dict[str, GatewayHandle],
    routes: tuple[Route, ...],
    *,
    is_changed: bool,
    machine: LocalMachine,
    directory: FleetDirectory,
    sessions: ControlSessions,
    deadline: _StartupDeadline,
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
    document = topology.to_dict()
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
    topology: Topology, handle: GatewayHandle, sessions: ControlSessions, deadline: _StartupDeadline
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


class _StartupDeadline:
    """The deadline of one `ensure`, which begins when the object is made."""

    def __init__(self, directory: FleetDirectory, timeout_s: float, clock: Clock) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._clock = clock
        self._deadline_s = clock.monotonic() + timeout_s

    def pause(self, node: str, what: str) -> None:
        """Sleep until the next poll. Raises ProvisionFailed for `node` after the deadline."""
        if self._clock.monotonic() >= self._deadline_s:
            raise self.failure(node, f"{what} within {self._timeout_s:g} s")
        self._clock.sleep(_POLL_S)

    def failure(self, node: str, what: str) -> ProvisionFailed:
        """The error of a gateway, with the end of its log."""
        tail = self._directory.gateway(node).log_tail(_LOG_TAIL_BYTES).strip()
        said = f"the end of its log:\n{tail}" if tail else "it left no log"
        return ProvisionFailed(f"gateway {node} of fleet {self._directory.key} {what}; {said}")
