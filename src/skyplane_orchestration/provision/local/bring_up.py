"""Brings one fleet up: adopts gateways that run, starts missing ones, connects all."""

from __future__ import annotations

import hashlib
import json
import logging
import ssl
import subprocess
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import (
    ProvisionFailed,
    TeardownIncomplete,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import LOCAL, Fleet, GatewayHandle
from skyplane_orchestration.provision.connect import (
    fleet_of,
    send_topology,
    topology_of,
    wait_connected,
)
from skyplane_orchestration.provision.control_sessions import ControlSessions, open_sessions
from skyplane_orchestration.provision.gateway_settings import gateway_config
from skyplane_orchestration.provision.local import machine
from skyplane_orchestration.provision.local.checks import require_open_files
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    FleetMeta,
    GatewayFiles,
    GatewayProcess,
    names_of,
)
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.provision.routes import build_routes, connections_of, peers_of
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0
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
    runner: Runner,
    began_s: float,
) -> Fleet:
    """Bring up a fleet whose lock the caller holds, and record it.

    An error or an interruption ends the gateways that this call has started. `nodes` maps a
    region tag to the wanted gateways; `began_s` is the monotonic time since which the caller waits.
    """
    attempt = _BringUp(spec, meta, nodes, directory, authority, runner, began_s)
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
    runner: Runner
    began_s: float

    def __post_init__(self) -> None:
        self._region_of = {node: region for region, group in self.nodes.items() for node in group}
        self._peers = peers_of(self.nodes)
        self._adopted: set[str] = set()
        self._started: set[GatewayFiles] = set()
        self._launchers: dict[GatewayFiles, subprocess.Popen[bytes]] = {}

    def run(self) -> Fleet:
        routes = build_routes(self.spec.plan, self.nodes)
        connections = max(connections_of(routes).values())
        require_open_files(self.runner.options.gateway_settings, connections)
        with closing(open_sessions(self.authority, self.runner.connect)) as sessions:
            self._adopt(sessions)
            self._stop_others()
            missing = [node for node in self._region_of if node not in self._adopted]
            found = counted(len(self._adopted), "gateway")
            log.info("fleet %s: %s found running, %d to start", self.spec.key, found, len(missing))
            deadline = _StartupDeadline(self.directory, self.runner)
            with timed(f"provision: starting {counted(len(missing), 'gateway')}"):
                for node in missing:
                    self._start(node)
                self._wait_until_ready(missing, deadline)
                handles = {node: self._handle(node, deadline) for node in self._region_of}
            with timed("provision: connecting them"):
                topology = topology_of(routes, handles)
                send_topology(topology, handles.values(), sessions, deadline)
                wait_connected(
                    handles, sessions, deadline, lambda: {one.node for one in self._running()}
                )
        fleet = fleet_of(
            self.spec,
            LOCAL,
            list(handles.values()),
            routes,
            host=self.meta.host,
            provision_s=self.runner.clock.monotonic() - self.began_s,
            hard_end_unix_s=self.meta.hard_end_unix_s,
        )
        self.directory.write_fleet(fleet.to_dict())
        return fleet

    def undo(self) -> None:
        """End what `run` has started; delete empty directories. Raises TeardownIncomplete."""
        remaining = self.runner.stop(
            lambda: [process for process in self._running() if process.files in self._started]
        )
        for launcher in self._launchers.values():
            launcher.poll()
        if remaining:
            raise TeardownIncomplete(
                f"fleet {self.spec.key} did not come up and these processes cannot be ended:"
                f" {names_of(remaining)}"
            )
        if not self.directory.processes():
            self.directory.remove()

    def _running(self) -> tuple[GatewayProcess, ...]:
        return self.directory.processes()

    # -- gateways that run

    def _adopt(self, sessions: ControlSessions) -> None:
        running = {process.files for process in self._running()}
        for node in self._region_of:
            files = self.directory.gateway(node)
            if files in running and self._is_usable(node, files, sessions):
                self._adopted.add(node)

    def _is_usable(self, node: str, files: GatewayFiles, sessions: ControlSessions) -> bool:
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            return False
        if not self._peers[node] <= set(config.hello_keys_hex):
            return False  # It was started for another plan and lacks keys of its peers.
        address = config.control_host, ports[0]
        return sessions.is_usable(node, address, self.spec.times.start_within_s)

    def _stop_others(self) -> None:
        """End gateways that do not respond, never became ready, or are not in the plan."""
        adopted = {self.directory.gateway(node) for node in self._adopted}
        remaining = self.runner.stop(
            lambda: [process for process in self._running() if process.files not in adopted]
        )
        if remaining:
            raise ProvisionFailed(
                f"gateways that do not respond cannot be ended either: {names_of(remaining)}"
            )

    # -- missing gateways

    def _start(self, node: str) -> None:
        region, plan = self._region_of[node], self.spec.plan
        options = self.runner.options
        files = self.directory.gateway(node)
        address = options.address(region)
        config = gateway_config(
            self.spec,
            self.authority,
            node,
            self._peers[node],
            self.meta.hard_end_unix_s - self.runner.clock.wall(),
            options.gateway_settings,
            directory=str(files.directory),
            control_host=address,
            data_host=address,
        )
        _write_files(files, config, self.authority, self.meta.hard_end_unix_s)
        # Noted before the start, so that an interruption in between is undone too.
        self._started.add(files)
        is_end = region in (plan.src, plan.dst)
        try:
            # With `--detach` the process only forks and exits, so nothing has to wait for it.
            own = ("--config", str(files.config_path), "--fleet", self.spec.key, "--detach")
            command = (*options.command_line(region), *own)
            self._launchers[files] = machine.start(files.directory, command, is_end=is_end)
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
            has_launched = {node: self._has_launched(node, deadline) for node in waiting}
            launched = [node for node in waiting if has_launched[node]]
            is_scan_due = polls % _POLLS_PER_SCAN == 0
            alive = {process.node for process in self._running()} if is_scan_due else launched
            ports = {node: self.directory.gateway(node).read_ports() for node in launched}
            waiting = [node for node in waiting if ports.get(node) is None]
            for node in waiting:
                if has_launched[node] and node not in alive:
                    raise deadline.failure(node, "ended")
            if waiting:
                deadline.pause(waiting[0], "did not become ready")

    def _has_launched(self, node: str, deadline: _StartupDeadline) -> bool:
        files = self.directory.gateway(node)
        status = self._launchers[files].poll()
        if status:
            raise deadline.failure(node, f"exited with status {status}")
        return status is not None

    def _handle(self, node: str, deadline: _StartupDeadline) -> GatewayHandle:
        files = self.directory.gateway(node)
        config, ports = files.read_config(), files.read_ports()
        certificate = files.read_certificate()
        if config is None or ports is None or certificate is None:
            raise deadline.failure(node, "has lost its files")
        return GatewayHandle(
            node=node,
            region=self._region_of[node],
            control=(config.control_host, ports[0]),
            data=(config.data_host, ports[1]),
            fingerprint=_fingerprint_of(certificate),
            details={"pid": str(ports[2]), "directory": str(files.directory)},
        )


def _write_files(
    files: GatewayFiles, config: GatewayConfig, authority: Authority, hard_end_unix_s: float
) -> None:
    """Write certificate, key and configuration of a gateway to its empty directory."""
    uri = authority.expected_uri(config.node)
    issued = authority.issue(uri, config.hard_end_s + _VALIDITY_MARGIN_S)
    files.fill(
        {
            config.certificate_path.name: issued.certificate_pem + issued.private_key_pem,
            config.authority_path.name: authority.ca_certificate_pem(
                hard_end_unix_s + _VALIDITY_MARGIN_S
            ),
            files.config_path.name: json.dumps(config.to_dict(), indent=1) + "\n",
        }
    )


def _fingerprint_of(pem: str) -> str:
    """SHA-256 of the certificate with which a PEM text begins, over its DER form, in hex."""
    certificate, end, _ = pem.partition("-----END CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate + end)).hexdigest()


class _StartupDeadline:
    """The deadline of one `ensure`, which begins when the object is made."""

    def __init__(self, directory: FleetDirectory, runner: Runner) -> None:
        self._directory = directory
        self._timeout_s = runner.options.ready_timeout_s
        self._clock = runner.clock
        self._deadline_s = runner.clock.monotonic() + runner.options.ready_timeout_s

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
