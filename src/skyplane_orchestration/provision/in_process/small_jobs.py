"""`SmallJobsProvisioner`: the gateways of small jobs as a thread of the calling process.

Source, sink and lead are the code that gateways run elsewhere. They end with the process, and
other processes cannot reach them. The process holds the lock of the fleet's directory, so a sweep
removes the directory of a process that was killed, and no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.errors import FleetLost, ForeignHost, MissingExtra, ProvisionFailed
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet, GatewayPlace
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.gateway_settings import gateway_config
from skyplane_orchestration.provision.local.options import loopback_address
from skyplane_orchestration.provision.local.run_directory import DirectoryBusy, FleetMeta, RunRoot
from skyplane_orchestration.provision.provisioner import Finding, FleetSpec, Provisioner
from skyplane_orchestration.provision.routes import build_routes, node_names, peers_of

if TYPE_CHECKING:
    from skyplane_orchestration.provision.in_process.fleet_thread import FleetThread
    from skyplane_orchestration.security.authority import Authority

#: A larger job gains more from a second process than the start of one costs (0.5 s).
_SMALL_GB: Final = 0.064
#: If one gateway is source and sink, only its threads carry bytes, and none needs the interpreter.
#: A larger job runs long enough that it should outlive its command.
_SMALL_IN_ONE_REGION_GB: Final = 4.0
#: Instances boot in 60 to 120 s.
_SMALL_BESIDE_CLOUDS_GB: Final = 1.0

#: Source and sink share the interpreter, so more readers only help while stores take their time to
#: answer: 16 objects of 64 MiB from one that answers 30 ms late took a third longer with 2.
_SETTINGS: Final[Mapping[str, Any]] = {"readers": 4}


@dataclass(frozen=True, slots=True)
class _Running:
    """`end` stops the gateways, removes the directory and unlocks it, when it is closed."""

    fleet: Fleet
    thread: FleetThread
    end: ExitStack

    @property
    def nodes(self) -> tuple[str, ...]:
        gateways = self.fleet.gateways if self.thread.is_alive else ()
        return tuple(gateway.node for gateway in gateways)


class SmallJobsProvisioner(Provisioner):
    """See `Provisioner`. A fleet that runs already stays where it is. Thread-safe.

    Args:
        outside: brings up the fleets of other jobs.
        root: the directory of all local fleets.
        place: which jobs run inside this process.
        is_small: whether a plan is small enough for `auto`.
    """

    def __init__(
        self,
        outside: Provisioner,
        root: RunRoot,
        place: GatewayPlace,
        *,
        is_small: Callable[[TransferPlan], bool],
    ) -> None:
        self._outside = outside
        self._root = root
        self._place = place
        self._is_small = is_small
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self.name = outside.name

    def may_run_inside(self, volume_gb: float | None) -> bool:
        """Whether only a plan says that a job needs no fleet outside; None: of any volume."""
        if self._place == "auto":
            return volume_gb is None or volume_gb <= _SMALL_IN_ONE_REGION_GB
        return self._place == "never"

    def keeps_inside(self, plan: TransferPlan) -> bool:
        """Whether the gateways of a new fleet with this plan run inside this process."""
        return self._place == "never" or (self._place == "auto" and self._is_small(plan))

    def _is_outside(self, spec: FleetSpec) -> bool:
        if spec.key in self._running:
            return False
        is_new = not spec.must_exist and self.keeps_inside(spec.plan)
        return not is_new or bool(self._outside.describe(spec.key))

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        if self._is_outside(spec):
            return self._outside.ensure(spec, authority)
        with self._lock:
            found = self._running.get(spec.key)
            if found is not None and found.thread.is_alive:
                return found.fleet
            if found is None and spec.must_exist:  # Another thread has torn it down meanwhile.
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

        began_s = SYSTEM_CLOCK.monotonic()
        nodes = node_names(spec.plan, 1)
        routes = build_routes(spec.plan, nodes)
        peers = peers_of(nodes)
        directory = self._root.fleet(spec.key)
        stack.enter_context(directory.locked(create=True, timeout_s=0.0, clock=SYSTEM_CLOCK))
        stack.callback(directory.remove)
        meta = FleetMeta.of(spec, SYSTEM_CLOCK.wall())
        directory.write_meta(meta)
        configs = {}
        for region, (node,) in nodes.items():
            files = directory.gateway(node)
            # Calls in memory need no certificates.
            files.fill({})
            address = loopback_address(region)
            configs[region] = gateway_config(
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
        thread = FleetThread(configs, routes)
        stack.callback(thread.stop, timeout_s=40.0)
        thread.start(timeout_s=30.0)
        fleet = Fleet(
            key=spec.key,
            generation=spec.generation,
            deployment=spec.deployment,
            provisioner=IN_PROCESS,
            plan=spec.plan,
            gateways=tuple(thread.handles.values()),
            routes=tuple(route.to_dict() for route in routes),
            host=meta.host,
            provision_s=SYSTEM_CLOCK.monotonic() - began_s,
            hard_end_unix_s=meta.hard_end_unix_s,
        )
        return _Running(fleet, thread, stack.pop_all())

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        found = self._running.get(fleet_key)
        return self._outside.describe(fleet_key) if found is None else found.nodes

    def recorded(self, fleet_key: str) -> Fleet | None:
        found = self._running.get(fleet_key)
        return self._outside.recorded(fleet_key) if found is None else found.fleet

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        if fleet_key not in self._running:
            return self._outside.destroy(fleet_key)
        with self._lock:
            return self._forget(fleet_key)

    def _forget(self, fleet_key: str) -> tuple[str, ...]:
        """End a fleet and remove its directory; the nodes that ran. Raises TeardownIncomplete."""
        found = self._running.pop(fleet_key, None)
        if found is None:
            return ()
        nodes = found.nodes
        found.end.close()
        return nodes

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        return {} if fleet_key in self._running else self._outside.log_tails(fleet_key, max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        if fleet.provisioner != IN_PROCESS:
            self._outside.check_host(fleet)
        elif fleet.key not in self._running:
            raise ForeignHost(
                f"fleet {fleet.key} runs inside the process that made it, which is another one;"
                " use gateways that are processes of their own (--gateways always)"
            )

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        return self._outside.dial_to(fleet_key, node)

    def sweep(self, deployment: str, **more: Any) -> SweepReport:
        return self._outside.sweep(deployment, **more)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return self._outside.quotas(regions)

    @property
    def provision_s(self) -> Mapping[str, float]:
        return self._outside.provision_s

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        return self.keeps_inside(plan) or self._outside.runs_on_this_machine(plan)

    def store_identity(self, region: str) -> str:
        return self._outside.store_identity(region)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return self._outside.check(deployment)


def is_small_on_this_machine(plan: TransferPlan) -> bool:
    """Whether processes of their own would gain nothing on this machine."""
    gateways = sum(group.count for group in plan.instances.values())
    limit_gb = _SMALL_IN_ONE_REGION_GB if gateways == 1 else _SMALL_GB
    return plan.volume_gb is not None and plan.volume_gb <= limit_gb


def is_small_beside_clouds(plan: TransferPlan) -> bool:
    """Whether a job is over before instances have booted, even at 0.1 Gbit/s."""
    return plan.volume_gb is not None and plan.volume_gb <= _SMALL_BESIDE_CLOUDS_GB
