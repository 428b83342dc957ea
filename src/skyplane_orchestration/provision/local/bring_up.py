"""One call of the local provisioner's `ensure`: from what is there to a connected fleet."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import DEFAULT_STORE_THREADS, GatewayConfig, Route, Topology
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
from skyplane_orchestration.provision.local import launch
from skyplane_orchestration.provision.local.processes import GatewayProcess
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    FleetMeta,
    GatewayFiles,
    write_document,
    write_private,
)
from skyplane_orchestration.provision.routes import build_routes, connections_of, neighbours
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

_POLL_S: Final = 0.02
#: So many looks at the files of starting gateways come to one scan of all processes.
_SCAN_EVERY: Final = 10
_LOG_TAIL_BYTES: Final = 4096
#: Certificates outlive their gateways a little, so that the last words can be had.
_VALIDITY_MARGIN_S: Final = 300.0


class ControlSession(Protocol):
    """The part of `skyplane_gateway.control.client.ControlClient` that provisioning uses."""

    def status(self) -> dict[str, Any]: ...

    def put_topology(self, topology: Topology) -> None: ...

    def renew(self, lease_s: float | None = None) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Site:
    """How gateways are started, found and stopped on this machine.

    Args:
        address: region tag -> address to listen on.
        prefix: region tag -> words in front of the command line.
        connect: (host, port, node) -> a session with that gateway.
        find: the fleet's processes at this moment.
        stop: ends what the given function finds; returns what is left.
        settings: further fields of every `GatewayConfig`.
    """

    address: Callable[[str], str]
    prefix: Callable[[str], tuple[str, ...]]
    command: tuple[str, ...]
    connect: Callable[[str, int, str], ControlSession]
    find: Callable[[], tuple[GatewayProcess, ...]]
    stop: Callable[[Callable[[], Iterable[GatewayProcess]]], tuple[GatewayProcess, ...]]
    settings: dict[str, Any]
    ready_timeout_s: float
    clock: Clock


class Assembly:
    """Brings one fleet up; the caller holds the fleet's lock.

    Args:
        nodes: region tag -> gateways wanted there.
    """

    def __init__(
        self,
        spec: FleetSpec,
        meta: FleetMeta,
        nodes: dict[str, tuple[str, ...]],
        directory: FleetDirectory,
        authority: Authority,
        site: Site,
    ) -> None:
        self._spec = spec
        self._meta = meta
        self._nodes = nodes
        self._region_of = {node: region for region, group in nodes.items() for node in group}
        self._directory = directory
        self._authority = authority
        self._site = site
        self._neighbours: dict[str, frozenset[str]] = {}
        self._deadline = 0.0
        self._sessions: dict[str, ControlSession] = {}
        self._adopted: set[str] = set()
        self._started: set[Path] = set()
        self._launchers: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def run(self) -> tuple[tuple[GatewayHandle, ...], tuple[Route, ...]]:
        """The gateways, connected, and their routes. On any error the caller calls `undo`."""
        routes = build_routes(self._spec.plan, self._nodes)
        self._neighbours = neighbours(routes)
        store_threads = self._site.settings.get("store_threads", DEFAULT_STORE_THREADS)
        launch.require_open_files(max(connections_of(routes).values()), store_threads)
        with self._open:
            self._adopt()
            self._stop_others()
            missing = self._missing()
            log.info(
                "fleet %s: %s found running, %d to start",
                self._spec.key,
                counted(len(self._adopted), "gateway"),
                len(missing),
            )
            self._deadline = self._site.clock.monotonic() + self._site.ready_timeout_s
            with timed(f"provision: starting {counted(len(missing), 'gateway')}"):
                for node in missing:
                    self._start(node)
                handles = self._await_ready()
            with timed("provision: connecting them"):
                self._connect(handles, routes)
            return tuple(handles[node] for node in self._region_of), routes

    def undo(self) -> bool:
        """End what `run` has started; True when nothing of the fleet is left.

        Raises TeardownIncomplete naming what could not be ended.
        """
        left = self._site.stop(self._started_here)
        for launcher in self._launchers.values():
            launcher.poll()
        if left:
            raise TeardownIncomplete(
                f"fleet {self._spec.key} did not come up and these processes cannot be ended: "
                + ", ".join(f"{GatewayFiles(p.directory).node} (pid {p.pid})" for p in left)
            )
        return not self._site.find()

    # -- what is there

    def _adopt(self) -> None:
        running = {process.directory for process in self._site.find()}
        for node in self._region_of:
            files = self._directory.gateway(node)
            if files.directory in running and self._answers(node, files):
                self._adopted.add(node)

    def _answers(self, node: str, files: GatewayFiles) -> bool:
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            return False
        if not self._neighbours[node] <= set(config.hello_keys_hex):
            return False  # Made for another plan: it could not prove itself to all of them.
        session = self._session(node, config.control_host, ports[0])
        try:
            if session.status().get("state") == "draining":
                # Somebody means to take the fleet down, or has died over it.
                raise GatewayDraining(f"{node} takes no new transfer")
            # It may have waited for its transfer already; the wait begins anew.
            session.renew(self._spec.start_within_s)
        except NotAuthorised:
            raise
        except GatewayError:
            del self._sessions[node]  # Its successor will have another port.
            return False
        return True

    def _not_adopted(self) -> tuple[GatewayProcess, ...]:
        kept = {self._directory.gateway(node).directory for node in self._adopted}
        return tuple(process for process in self._site.find() if process.directory not in kept)

    def _started_here(self) -> tuple[GatewayProcess, ...]:
        return tuple(p for p in self._site.find() if p.directory in self._started)

    def _stop_others(self) -> None:
        """End gateways that hang, that never became ready, or that the plan has no use for."""
        left = self._site.stop(self._not_adopted)
        if left:
            raise ProvisionFailed(
                "gateways that do not answer cannot be ended either: pids "
                + ", ".join(str(process.pid) for process in left)
            )

    def _missing(self) -> tuple[str, ...]:
        return tuple(node for node in self._region_of if node not in self._adopted)

    # -- what is missing

    def _start(self, node: str) -> None:
        region, plan = self._region_of[node], self._spec.plan
        files = self._directory.gateway(node)
        files.make_empty()
        remaining_s = self._meta.hard_end_unix_s - self._site.clock.wall()
        validity_s = remaining_s + _VALIDITY_MARGIN_S
        issued = self._authority.issue(self._authority.expected_uri(node), validity_s)
        write_private(files.certificate_path, issued.certificate_pem + issued.private_key_pem)
        write_private(
            files.authority_path,
            self._authority.ca_certificate_pem(self._meta.hard_end_unix_s + _VALIDITY_MARGIN_S),
        )
        address = self._site.address(region)
        config = GatewayConfig(
            node=node,
            fleet_key=self._spec.key,
            control_host=address,
            data_host=address,
            directory=str(files.directory),
            hello_keys_hex={
                peer: self._authority.hello_key(node, peer).hex()
                for peer in sorted(self._neighbours[node])
            },
            start_within_s=self._spec.start_within_s,
            lease_s=self._spec.lease_s,
            hard_end_s=remaining_s,
            **self._site.settings,
        )
        write_document(files.config_path, config.to_dict())
        # Noted before, so that no interruption falls between the act and the note.
        self._started.add(files.directory)
        try:
            self._launchers[node] = launch.start(
                files,
                fleet_key=self._spec.key,
                prefix=self._site.prefix(region),
                command=self._site.command,
                is_end=region in (plan.src, plan.dst),
            )
        except OSError as error:
            raise ProvisionFailed(
                f"gateway {node} cannot be started: {error}; check launch_prefix and python"
            ) from error

    def _await_ready(self) -> dict[str, GatewayHandle]:
        waiting = list(self._missing())
        turn = 0
        while waiting:
            turn += 1
            # The order matters: a launcher that has ended leaves a gateway that the scan
            # finds, and a gateway that the scan does not find may have been ready before.
            launched = {node for node in waiting if self._is_launched(node)}
            # A scan takes longer than all else here, and from the gateways' processor time.
            alive = launched if turn % _SCAN_EVERY else self._alive()
            waiting = [
                node
                for node in waiting
                if node not in launched or self._directory.gateway(node).read_ports() is None
            ]
            for node in waiting:
                if node in launched and node not in alive:
                    raise self._failed(node, "ended")
            if waiting:
                self._pause(waiting[0], "did not become ready")
        return {node: self._handle(node) for node in self._region_of}

    def _is_launched(self, node: str) -> bool:
        status = self._launchers[node].poll()
        if status:
            raise self._failed(node, f"exited with status {status}")
        return status is not None

    def _alive(self) -> set[str]:
        return {GatewayFiles(process.directory).node for process in self._site.find()}

    def _handle(self, node: str) -> GatewayHandle:
        from skyplane_orchestration.security.authority import fingerprint_of

        files = self._directory.gateway(node)
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            raise self._failed(node, "has lost its files")
        return GatewayHandle(
            node=node,
            region=self._region_of[node],
            control=(config.control_host, ports[0]),
            data=(config.data_host, ports[1]),
            fingerprint=fingerprint_of(files.certificate_path.read_text(encoding="ascii")),
            details={"pid": str(ports[2]), "directory": str(files.directory)},
        )

    # -- the way to each other

    def _connect(self, handles: dict[str, GatewayHandle], routes: tuple[Route, ...]) -> None:
        topology = Topology(
            routes=routes,
            data_addresses={node: handle.data for node, handle in handles.items()},
            control_addresses={node: handle.control for node, handle in handles.items()},
        )
        document = json.loads(json.dumps(topology.to_dict()))
        # A fleet that is as it was may be in the middle of a transfer: do not touch it.
        if self._missing() or self._directory.read_topology() != document:
            for handle in handles.values():
                self._tell(handle, topology)
            self._directory.write_topology(document)
        waiting = list(handles)
        while waiting:
            alive = self._alive()
            waiting = [n for n in waiting if not self._is_connected(handles[n])]
            for node in waiting:
                if node not in alive:
                    raise self._failed(node, "ended")
            if waiting:
                self._pause(waiting[0], "did not connect to its neighbours")

    def _tell(self, handle: GatewayHandle, topology: Topology) -> None:
        try:
            self._session(handle.node, *handle.control).put_topology(topology)
        except NotAuthorised:
            raise
        except GatewayError as error:
            raise self._failed(handle.node, f"did not take its topology: {error}") from error

    def _is_connected(self, handle: GatewayHandle) -> bool:
        try:
            return bool(self._session(handle.node, *handle.control).status()["connected"])
        except NotAuthorised:
            raise
        except GatewayError:
            return False

    def _session(self, node: str, host: str, port: int) -> ControlSession:
        if node not in self._sessions:
            session = self._site.connect(host, port, node)
            self._open.callback(session.close)
            self._sessions[node] = session
        return self._sessions[node]

    def _pause(self, node: str, what: str) -> None:
        if self._site.clock.monotonic() >= self._deadline:
            raise self._failed(node, f"{what} within {self._site.ready_timeout_s:g} s")
        self._site.clock.sleep(_POLL_S)

    def _failed(self, node: str, what: str) -> ProvisionFailed:
        tail = self._directory.gateway(node).log_tail(_LOG_TAIL_BYTES).strip()
        told = f"the end of its log:\n{tail}" if tail else "it left no log"
        return ProvisionFailed(f"gateway {node} of fleet {self._spec.key} {what}; {told}")


def route_document(route: Route) -> dict[str, Any]:
    """A route as plain JSON data, equal to what comes back from a fleet document."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(route)))
    return document
