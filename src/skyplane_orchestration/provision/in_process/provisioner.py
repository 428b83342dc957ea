"""`InProcessProvisioner`: the gateways of a fleet as a thread of the calling process.

Source, sink and lead are the code that gateways run elsewhere. They end with the process, and
other processes cannot reach them. The process holds the lock of the fleet's directory, so a sweep
removes the directory of a process that was killed, and no other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import FleetLost, ForeignHost, MissingExtra, ProvisionFailed
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet, GatewayHandle
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.connect import fleet_of
from skyplane_orchestration.provision.gateway_settings import gateway_config
from skyplane_orchestration.provision.local.options import loopback_address
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    RunRoot,
)
from skyplane_orchestration.provision.provisioner import FleetSpec, Provisioner
from skyplane_orchestration.provision.routes import (
    build_routes,
    node_names,
    peers_of,
)

if TYPE_CHECKING:
    from skyplane_orchestration.provision.in_process.fleet_thread import FleetThread
    from skyplane_orchestration.security.authority import Authority

_READY_TIMEOUT_S: Final = 30.0
_END_TIMEOUT_S: Final = 40.0

#: Source and sink share the interpreter: with more readers, both get less done (measured).
_SETTINGS: Final[Mapping[str, Any]] = {"readers": 2}


@dataclass(frozen=True, slots=True)
class _Running:
    """`end` stops the gateways, removes the directory and unlocks it, when it is closed."""

    fleet: Fleet
    thread: FleetThread
    end: ExitStack


class InProcessProvisioner(Provisioner):
    """See `Provisioner`. Thread-safe.

    Args:
        root: the directory of all local fleets.
    """

    name = IN_PROCESS

    def __init__(self, root: RunRoot, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        with self._lock:
            found = self._running.get(spec.key)
            if found is not None and found.thread.is_alive:
                return found.fleet
            if found is None and spec.must_exist:
                raise FleetLost(f"fleet {spec.key} was torn down")
            self._forget(spec.key)
            self._root.prepare()
            with ExitStack() as stack:
                try:
                    started = self._start(spec, authority, stack)
                except (DirectoryBusy, OSError) as error:
                    raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
                self._running[spec.key] = started
            return started.fleet

    def _start(self, spec: FleetSpec, authority: Authority, stack: ExitStack) -> _Running:
        # It loads the gateway, which a job with nothing to do does not need.
        try:
            from skyplane_orchestration.provision.in_process.fleet_thread import FleetThread
        except ModuleNotFoundError as error:
            raise MissingExtra.of("a copy inside this process", "gateway") from error

        began_s = self._clock.monotonic()
        nodes = node_names(spec.plan, 1)
        routes = build_routes(spec.plan, nodes)
        region_of = {node: region for region, group in nodes.items() for node in group}
        directory = self._root.fleet(spec.key)
        stack.enter_context(directory.locked(create=True, timeout_s=0.0, clock=self._clock))
        stack.callback(directory.remove)
        meta = FleetMeta.of(spec, self._clock.wall())
        directory.write_meta(meta)
        configs = self._configs(spec, authority, directory, region_of, peers_of(nodes))
        thread = FleetThread(configs, routes)
        stack.callback(thread.stop, _END_TIMEOUT_S)
        thread.start(_READY_TIMEOUT_S)
        fleet = fleet_of(
            spec,
            self.name,
            [_handle(config, region_of, thread) for config in configs],
            routes,
            host=meta.host,
            provision_s=self._clock.monotonic() - began_s,
            hard_end_unix_s=meta.hard_end_unix_s,
        )
        return _Running(fleet, thread, stack.pop_all())

    def _configs(
        self,
        spec: FleetSpec,
        authority: Authority,
        directory: FleetDirectory,
        region_of: Mapping[str, str],
        peers: Mapping[str, frozenset[str]],
    ) -> list[GatewayConfig]:
        """The gateways' configurations. Calls in memory need no certificates."""
        configs = []
        for node, region in region_of.items():
            files = directory.gateway(node)
            files.fill({})
            address = loopback_address(region)
            configs.append(
                gateway_config(
                    spec,
                    authority,
                    node,
                    peers[node],
                    spec.times.hard_end_s,
                    _SETTINGS,
                    directory=str(files.directory),
                    control_host=address,
                    data_host=address,
                )
            )
        return configs

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        found = self._running.get(fleet_key)
        if found is None or not found.thread.is_alive:
            return ()
        return tuple(gateway.node for gateway in found.fleet.gateways)

    def recorded(self, fleet_key: str) -> Fleet | None:
        found = self._running.get(fleet_key)
        return None if found is None else found.fleet

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        with self._lock:
            nodes = self.describe(fleet_key)
            self._forget(fleet_key)
            return nodes

    def _forget(self, fleet_key: str) -> None:
        """End a fleet and remove its directory. Raises TeardownIncomplete."""
        found = self._running.pop(fleet_key, None)
        if found is not None:
            found.end.close()

    def check_host(self, fleet: Fleet) -> None:
        if fleet.key not in self._running:
            raise ForeignHost(
                f"fleet {fleet.key} runs inside the process that made it, which is another one;"
                " use gateways that are processes of their own (--gateways always)"
            )

    def sweep(self, deployment: str, *, dry_run: bool = False, **_: Any) -> SweepReport:
        """Nothing: these gateways end with their process."""
        return SweepReport((), (), dry_run)


def _handle(
    config: GatewayConfig, region_of: Mapping[str, str], thread: FleetThread
) -> GatewayHandle:
    ports = thread.ports[config.node]
    return GatewayHandle(config.node, region_of[config.node], ports.control, ports.data, "")
