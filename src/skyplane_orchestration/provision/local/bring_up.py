"""Brings one fleet up: adopts gateways that run, starts missing ones, connects all."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import ProvisionFailed, TeardownIncomplete
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import LOCAL, Fleet, GatewayHandle
from skyplane_orchestration.provision.control_sessions import (
    ControlSessions,
    open_sessions,
    send_topology,
    wait_connected,
)
from skyplane_orchestration.provision.gateway_settings import gateway_config
from skyplane_orchestration.provision.local import machine
from skyplane_orchestration.provision.local.checks import require_open_files
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    FleetMeta,
)
from skyplane_orchestration.provision.local.teardown import Runner
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.provision.routes import build_routes, connections_of, peers_of
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0
_POLL_S: Final = 0.005

log = logging.getLogger(__name__)

#: Polls of the files of starting gateways per scan of all processes, which costs more.
_POLLS_PER_SCAN: Final = 40


@dataclass
class BringUp:
    """Brings up a fleet whose lock the caller holds, and records it.

    Args:
        nodes: region tag -> the wanted gateways.
        began_s: monotonic time since which the caller waits.
    """

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
        self._started: set[str] = set()
        self._launchers: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> Fleet:
        """An error or an interruption ends the gateways that this call has started."""
        try:
            return self._run()
        except BaseException:
            self._undo()
            raise

    def _run(self) -> Fleet:
        clock, options = self.runner.clock, self.runner.options
        routes = build_routes(self.spec.plan, self.nodes)
        require_open_files(options.gateway_settings, max(connections_of(routes).values()))
        with closing(open_sessions(self.authority, self.runner.connect)) as sessions:
            running = self.directory.nodes()
            adopted = {
                node
                for node in self._region_of
                if node in running and self._is_usable(node, sessions)
            }
            # Those that do not respond, never became ready, or are not in the plan.
            if remaining := self._stop(lambda node: node not in adopted):
                raise ProvisionFailed(
                    f"gateways that do not respond cannot be ended either: {remaining}"
                )
            missing = [node for node in self._region_of if node not in adopted]
            found = counted(len(adopted), "gateway")
            log.info("fleet %s: %s found running, %d to start", self.spec.key, found, len(missing))
            self._deadline_s = clock.monotonic() + options.ready_timeout_s
            with timed(f"provision: starting {counted(len(missing), 'gateway')}"):
                for node in missing:
                    self._start(node)
                self._wait_until_ready(missing)
                handles = {node: self._handle(node) for node in self._region_of}
            with timed("provision: connecting them"):
                send_topology(routes, handles, sessions, self)
                wait_connected(handles, sessions, self, self.directory.nodes)
        fleet = Fleet(
            key=self.spec.key,
            generation=self.spec.generation,
            deployment=self.spec.deployment,
            provisioner=LOCAL,
            plan=self.spec.plan,
            gateways=tuple(handles.values()),
            routes=tuple(route.to_dict() for route in routes),
            host=self.meta.host,
            provision_s=clock.monotonic() - self.began_s,
            hard_end_unix_s=self.meta.hard_end_unix_s,
        )
        self.directory.write_fleet(fleet.to_dict())
        return fleet

    def _undo(self) -> None:
        """End what `run` has started; delete empty directories. Raises TeardownIncomplete."""
        remaining = self._stop(lambda node: node in self._started)
        for launcher in self._launchers.values():
            launcher.poll()
        if remaining:
            raise TeardownIncomplete(
                f"fleet {self.spec.key} did not come up and these processes cannot be ended:"
                f" {remaining}"
            )
        if not self.directory.processes():
            self.directory.remove()

    def _stop(self, which: Callable[[str], bool]) -> str:
        """End the gateways of the chosen nodes; see `Runner.stop`."""
        return self.runner.stop(
            lambda: [process for process in self.directory.processes() if which(process.node)]
        )

    # -- the deadline of `send_topology` and `wait_connected`

    def pause(self, node: str, what: str) -> None:
        """Sleep until the next poll. Raises ProvisionFailed for `node` after the deadline."""
        if self.runner.clock.monotonic() >= self._deadline_s:
            raise self.failure(node, f"{what} within {self.runner.options.ready_timeout_s:g} s")
        self.runner.clock.sleep(_POLL_S)

    def failure(self, node: str, what: str) -> ProvisionFailed:
        """The error of a gateway, with the end of its log."""
        tail = self.directory.gateway(node).log_tail(max_bytes=4096).strip()
        said = f"the end of its log:\n{tail}" if tail else "it left no log"
        return ProvisionFailed(f"gateway {node} of fleet {self.spec.key} {what}; {said}")

    # -- gateways

    def _is_usable(self, node: str, sessions: ControlSessions) -> bool:
        files = self.directory.gateway(node)
        config, ports = files.read_config(), files.read_ports()
        if config is None or ports is None:
            return False
        if not self._peers[node] <= set(config.hello_keys_hex):
            return False  # It was started for another plan and lacks keys of its peers.
        address = config.control_host, ports[0]
        return sessions.is_usable(node, address, self.spec.times.start_within_s)

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
        uri = self.authority.expected_uri(node)
        issued = self.authority.issue(uri, config.hard_end_s + _VALIDITY_MARGIN_S)
        until_s = self.meta.hard_end_unix_s + _VALIDITY_MARGIN_S
        files.fill(
            {
                config.certificate_path.name: issued.certificate_pem + issued.private_key_pem,
                config.authority_path.name: self.authority.ca_certificate_pem(until_s),
                files.config_path.name: json.dumps(config.to_dict(), indent=1) + "\n",
            }
        )
        # Noted before the start, so that an interruption in between is undone too.
        self._started.add(node)
        is_end = region in plan.ends
        program = options.command or (options.python, "-m", "skyplane_gateway")
        # With `--detach` the process only forks and exits, so nothing has to wait for it.
        own = ("--config", str(files.config_path), "--fleet", self.spec.key, "--detach")
        command = (*options.launch_prefix.get(region, ()), *program, *own)
        try:
            self._launchers[node] = machine.start(files.directory, command, is_end=is_end)
        except OSError as error:
            raise ProvisionFailed(
                f"gateway {node} cannot be started: {error}; check launch_prefix and python"
            ) from error

    def _wait_until_ready(self, missing: list[str]) -> None:
        waiting = list(missing)
        for polls in count(1):
            # The order matters: the scan finds a gateway once its launcher has exited, and a
            # gateway that the scan does not find may have written its ready file before.
            launched = [node for node in waiting if self._has_launched(node)]
            alive = self.directory.nodes() if polls % _POLLS_PER_SCAN == 0 else launched
            silent = [
                node for node in launched if self.directory.gateway(node).read_ports() is None
            ]
            if ended := [node for node in silent if node not in alive]:
                raise self.failure(ended[0], "ended")
            waiting = [node for node in waiting if node in silent or node not in launched]
            if not waiting:
                return
            self.pause(waiting[0], "did not become ready")

    def _has_launched(self, node: str) -> bool:
        status = self._launchers[node].poll()
        if status:
            raise self.failure(node, f"exited with status {status}")
        return status is not None

    def _handle(self, node: str) -> GatewayHandle:
        files = self.directory.gateway(node)
        config, ports = files.read_config(), files.read_ports()
        fingerprint = files.fingerprint()
        if config is None or ports is None or not fingerprint:
            raise self.failure(node, "has lost its files")
        return GatewayHandle(
            node=node,
            region=self._region_of[node],
            control=(config.control_host, ports[0]),
            data=(config.data_host, ports[1]),
            fingerprint=fingerprint,
            details={"pid": str(ports[2]), "directory": str(files.directory)},
        )
