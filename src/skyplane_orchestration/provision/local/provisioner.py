"""The local provisioner: gateways as processes on this machine.

For transfers that need no cloud instances (one machine, network namespaces, tests, the
demo), and the reference for what every provisioner does. Address map and launch prefix put
gateways of different "regions" on different addresses or into different namespaces.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import LOCAL, Fleet
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.base import FleetSpec, FoundGateway
from skyplane_orchestration.provision.local import processes
from skyplane_orchestration.provision.local.bring_up import (
    Assembly,
    ControlSession,
    Site,
    route_document,
)
from skyplane_orchestration.provision.local.processes import GatewayProcess
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    GatewayFiles,
    RunRoot,
    default_run_root,
)
from skyplane_orchestration.provision.routes import node_names

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: (host, port, context, expected URI name) -> a session with a gateway.
SessionFactory = Callable[[str, int, ssl.SSLContext, str], ControlSession]

#: What the provisioner itself decides about a gateway; the rest may be set by the user.
_OWN_SETTINGS: Final = frozenset(
    {
        "node",
        "fleet_key",
        "control_host",
        "data_host",
        "directory",
        "hello_keys_hex",
        "control_port",
        "data_port",
        "start_within_s",
        "lease_s",
        "hard_end_s",
    }
)


#: What the configuration of every gateway has; to see whether settings go with it.
_ANY_GATEWAY: Final = {
    "node": "any",
    "fleet_key": "any",
    "control_host": "any",
    "data_host": "any",
    "directory": "any",
}


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How gateways run on this machine.

    Args:
        run_root: directory of all local fleets, private to this user; None for
            `$XDG_RUNTIME_DIR/skyplane-orch` or `/tmp/skyplane-orch-<uid>`. Every worker
            that is to find the fleets must use the same.
        address_map: region tag -> address to listen on; regions that are not named get a
            loopback address of their own.
        launch_prefix: region tag -> words in front of the command line, for example
            `("ip", "netns", "exec", "a")`. It must end by executing the rest.
        max_gateways_per_region: one machine gains nothing from as many processes as a
            plan has instances.
        python: interpreter that has `skyplane_gateway`.
        command: program and first arguments, in place of `python -m skyplane_gateway`.
        ready_timeout_s: longest time until all gateways are up and connected.
        term_grace_s: time to end in good order before a gateway is killed; longer than
            the 30 s that a gateway gives itself to abort what it has begun.
        kill_grace_s: time for the kernel to end what was killed.
        gateway_settings: further fields of every gateway's configuration
            (`ack_deadline_s`, `stall_deadline_s`, `write_timeout_s`, `readers`, ...).

    Raises ConfigurationInvalid for a setting that no gateway has, or that none can use.
    """

    run_root: Path | None = None
    address_map: Mapping[str, str] = field(default_factory=dict)
    launch_prefix: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_gateways_per_region: int = 2
    python: str = sys.executable
    command: tuple[str, ...] = ()
    ready_timeout_s: float = 60.0
    term_grace_s: float = 35.0
    kill_grace_s: float = 5.0
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {entry.name for entry in fields(GatewayConfig)} - _OWN_SETTINGS
        unknown = sorted(set(self.gateway_settings) - known)
        if unknown:
            raise ConfigurationInvalid(
                f"gateway_settings cannot hold {', '.join(unknown)}; it can hold"
                f" {', '.join(sorted(known))}"
            )
        # Here, since a gateway would only say so once it has been started.
        GatewayConfig.from_dict({**_ANY_GATEWAY, **self.gateway_settings})
        if self.max_gateways_per_region < 1:
            raise ConfigurationInvalid("max_gateways_per_region must be at least 1")


def loopback_address(region: str) -> str:
    """An address in 127.0.0.0/8 for a region tag, the same everywhere and always.

    Linux answers on the whole block without set-up (RFC 6890 reserves it for loopback).
    """
    first, second, third = hashlib.sha256(region.encode()).digest()[:3]
    # 0 and 255 at the ends look like network and broadcast addresses to some tools.
    return f"127.{1 + first % 254}.{second}.{1 + third % 254}"


class LocalProvisioner:
    """Gateways as processes; see `base.Provisioner` for what each verb promises.

    Args:
        connect: opens control sessions; replaced in tests.
    """

    def __init__(
        self,
        options: LocalOptions | None = None,
        *,
        connect: SessionFactory = ControlClient,
        clock: Clock | None = None,
    ) -> None:
        self.options = LocalOptions() if options is None else options
        # Command lines are compared with it, so every worker must spell it alike. The last
        # part is not resolved: that it is no symbolic link is checked before each use.
        run_root = self.options.run_root or default_run_root()
        self._root = RunRoot(run_root.parent.resolve() / run_root.name)
        self._open_session = connect
        self._clock = Clock() if clock is None else clock

    @property
    def name(self) -> str:
        return LOCAL

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        began_s = self._clock.monotonic()
        self._require_gateway()
        most = spec.max_gateways_per_region or self.options.max_gateways_per_region
        nodes = node_names(spec.plan, most)
        self._root.prepare()
        directory = self._root.fleet(spec.key)
        try:
            with directory.locked(
                create=not spec.must_exist, patience_s=self._patience_s, clock=self._clock
            ):
                meta = self._settle(directory, spec)
                return self._assemble(spec, meta, nodes, directory, authority, began_s)
        except FileNotFoundError as error:
            if not spec.must_exist or directory.path.exists():
                raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
            raise FleetLost(f"fleet {spec.key} was torn down") from error
        except DirectoryBusy as error:
            raise ProvisionFailed(f"{error}, for {self._patience_s:g} s already") from error
        except _RAISED_AS_THEY_ARE:
            raise
        except (SkyplaneError, OSError) as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error

    def find(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        pids: dict[str, list[str]] = {}
        for process in self._processes(self._root.fleet(fleet_key)):
            pids.setdefault(_node(process), []).append(str(process.pid))
        return tuple(
            FoundGateway(node=node, details={"pid": ",".join(pids[node])}) for node in sorted(pids)
        )

    def recorded(self, fleet_key: str) -> Fleet | None:
        document = self._root.fleet(fleet_key).read_fleet()
        try:
            fleet = None if document is None else Fleet.from_dict(document)
        except ConfigurationInvalid as error:
            log.info("the record of fleet %s cannot be used: %s", fleet_key, error)
            return None
        is_here = fleet is not None and fleet.host == processes.host_identity()
        return fleet if is_here else None

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        self._root.prepare()
        directory = self._root.fleet(fleet_key)
        try:
            # Made when it is missing: without the lock a fleet that comes up at this very
            # moment would lose half its gateways.
            with directory.locked(create=True, patience_s=self._patience_s, clock=self._clock):
                return self._destroy(directory)
        except DirectoryBusy as error:
            left = ", ".join(gateway.node for gateway in self.find(fleet_key))
            raise TeardownIncomplete(f"{error}; still running: {left or 'nothing yet'}") from error

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        gateways = self._root.fleet(fleet_key).gateways()
        tails = {files.node: files.log_tail(max_bytes) for files in gateways}
        return {node: tail for node, tail in tails.items() if tail}

    def check_host(self, fleet: Fleet) -> None:
        self._refuse_foreign(fleet.host, fleet.key)

    def sweep(
        self, deployment: str, *, dry_run: bool = False, older_than_s: float | None = None
    ) -> SweepReport:
        self._root.prepare()
        orphans: list[SweptFleet] = []
        kept: list[str] = []
        for directory in self._root.fleets():
            try:
                with directory.locked(create=False, patience_s=0.0, clock=self._clock):
                    meta = directory.read_meta()
                    if meta is not None and meta.deployment != deployment:
                        continue
                    reason = self._orphan_reason(directory, meta, older_than_s)
                    if reason:
                        orphans.append(self._sweep_one(directory, reason, dry_run=dry_run))
                    else:
                        kept.append(directory.key)
            except DirectoryBusy:
                kept.append(directory.key)
            except FileNotFoundError:
                continue  # Somebody has torn it down in the meantime.
        return SweepReport(orphans=tuple(orphans), kept=tuple(kept), dry_run=dry_run)

    # -- ensure

    def _require_gateway(self) -> None:
        """See that this interpreter can run gateways, where it is to run them.

        Raises:
            MissingExtra: the gateway's HTTP server is not installed.
        """
        options = self.options
        is_own = not options.command and options.python == sys.executable
        if is_own and importlib.util.find_spec("aiohttp") is None:
            raise MissingExtra.of("a gateway on this machine", "gateway")

    def _settle(self, directory: FleetDirectory, spec: FleetSpec) -> FleetMeta:
        """The record of the fleet that is there, or of a new one."""
        now, host = self._clock.wall(), processes.host_identity()
        meta = directory.read_meta()
        if meta is not None:
            if meta.deployment != spec.deployment:
                raise ConfigurationInvalid(
                    f"fleet {spec.key} belongs to deployment {meta.deployment!r},"
                    f" not to {spec.deployment!r}"
                )
            if _machine(meta.host) != _machine(host):
                self._refuse_foreign(meta.host, spec.key)
            if meta.host == host and meta.hard_end_unix_s > now:
                return meta
            # The machine was started anew, or the fleet has come to its end: begin again.
            self._stop_all(directory)
            directory.clear()
        meta = FleetMeta(
            deployment=spec.deployment,
            generation=spec.generation,
            created_unix_s=now,
            hard_end_unix_s=now + spec.hard_end_s,
            host=host,
        )
        directory.write_meta(meta)
        return meta

    def _assemble(
        self,
        spec: FleetSpec,
        meta: FleetMeta,
        nodes: dict[str, tuple[str, ...]],
        directory: FleetDirectory,
        authority: Authority,
        began_s: float,
    ) -> Fleet:
        assembly = Assembly(
            spec, meta, nodes, directory, authority, self._site(directory, authority)
        )
        try:
            gateways, routes = assembly.run()
        except BaseException:
            # Also for an interruption: Ctrl-C, or the exception that an orchestrator
            # raises from its SIGTERM handler. What was started must not outlive it.
            if assembly.undo():
                directory.remove()
            raise
        fleet = Fleet(
            key=spec.key,
            generation=spec.generation,
            deployment=spec.deployment,
            provisioner=self.name,
            plan=spec.plan,
            gateways=gateways,
            routes=tuple(route_document(route) for route in routes),
            host=meta.host,
            provision_s=self._clock.monotonic() - began_s,
            hard_end_unix_s=meta.hard_end_unix_s,
        )
        directory.write_fleet(fleet.to_dict())
        return fleet

    def _site(self, directory: FleetDirectory, authority: Authority) -> Site:
        options = self.options
        context = authority.client_context()
        return Site(
            address=lambda region: options.address_map.get(region) or loopback_address(region),
            prefix=lambda region: tuple(options.launch_prefix.get(region, ())),
            command=options.command or (options.python, "-m", "skyplane_gateway"),
            connect=lambda host, port, node: self._open_session(
                host, port, context, authority.expected_uri(node)
            ),
            find=lambda: self._processes(directory),
            stop=self._stop,
            settings=dict(options.gateway_settings),
            ready_timeout_s=options.ready_timeout_s,
            clock=self._clock,
        )

    # -- the end

    def _destroy(self, directory: FleetDirectory) -> tuple[str, ...]:
        stopped = {_node(process) for process in self._processes(directory)}
        self._stop_all(directory)
        try:
            directory.remove()
        except OSError as error:
            raise TeardownIncomplete(
                f"the gateways of fleet {directory.key} have ended, but its directory"
                f" cannot be removed: {error}"
            ) from error
        if stopped:
            log.info("fleet %s: %s ended", directory.key, counted(len(stopped), "gateway"))
        return tuple(sorted(stopped))

    def _stop_all(self, directory: FleetDirectory) -> None:
        left = self._stop(lambda: self._processes(directory))
        if left:
            raise TeardownIncomplete(
                f"gateways of fleet {directory.key} are still there: "
                + ", ".join(f"{_node(process)} (pid {process.pid})" for process in left)
                + "; end them by hand or run teardown again"
            )

    def _stop(self, find: Callable[[], Iterable[GatewayProcess]]) -> tuple[GatewayProcess, ...]:
        return processes.stop(
            find,
            term_grace_s=self.options.term_grace_s,
            kill_grace_s=self.options.kill_grace_s,
            clock=self._clock,
        )

    def _orphan_reason(
        self, directory: FleetDirectory, meta: FleetMeta | None, older_than_s: float | None
    ) -> str:
        """Why nobody will come back for it; empty when somebody may."""
        living = self._processes(directory)
        if meta is None:
            # Its maker died between the first two steps; it holds nothing, whoever it was.
            return "" if living else "left without a record"
        if self._clock.wall() >= meta.hard_end_unix_s:
            return "past its hard end"
        if _machine(meta.host) != _machine(processes.host_identity()):
            return ""  # A shared directory: another machine's processes cannot be seen.
        if not living:
            return "none of its gateways is alive"
        age_s = self._clock.wall() - meta.created_unix_s
        if older_than_s is not None and age_s > older_than_s:
            return f"made {age_s:.0f} s ago"
        return ""

    def _sweep_one(self, directory: FleetDirectory, reason: str, *, dry_run: bool) -> SweptFleet:
        gateways = tuple(gateway.node for gateway in self.find(directory.key))
        failure = ""
        if not dry_run:
            try:
                self._destroy(directory)
            except TeardownIncomplete as error:
                failure = str(error)
        return SweptFleet(key=directory.key, reason=reason, gateways=gateways, error=failure)

    # -- small things

    @property
    def _patience_s(self) -> float:
        """As long as another's `ensure` can take at the most."""
        options = self.options
        return options.ready_timeout_s + 2 * (options.term_grace_s + options.kill_grace_s)

    def _processes(self, directory: FleetDirectory) -> tuple[GatewayProcess, ...]:
        return processes.scan(self._root.path, directory.key)

    def _refuse_foreign(self, host: str, fleet_key: str) -> None:
        here = processes.host_identity()
        if host != here:
            raise ForeignHost(
                f"fleet {fleet_key} runs as processes on {_machine(host)} (boot"
                f" {host.rpartition('/')[2]}), and this is {_machine(here)} (boot"
                f" {here.rpartition('/')[2]}); with a local fleet provision, transfer and"
                " teardown must run on one host: use the one-task form"
                " `SkyplaneTransferOperator(fleet=None)` or `skyplane-orch cp`, which"
                " provisions, moves and tears down in one task"
            )


_RAISED_AS_THEY_ARE: Final = (
    ConfigurationInvalid,
    ForeignHost,
    NotAuthorised,
    ProvisionFailed,
    TeardownIncomplete,
)


def _node(process: GatewayProcess) -> str:
    return GatewayFiles(process.directory).node


def _machine(host: str) -> str:
    return host.rpartition("/")[0]
