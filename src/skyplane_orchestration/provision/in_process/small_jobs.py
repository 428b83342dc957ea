"""Chooses where the gateways of a fleet run: inside this process, or as processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet, GatewayPlace
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.in_process.provisioner import InProcessProvisioner
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.provisioner import (
    Finding,
    FleetSpec,
    Provisioner,
)

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: A larger job gains more from a second process than the start of one costs (0.5 s).
_SMALL_GB: Final = 0.064
#: If one gateway is source and sink, only its threads carry bytes, and none needs the interpreter.
#: A larger job runs long enough that it should outlive its command.
_SMALL_IN_ONE_REGION_GB: Final = 4.0
#: Instances boot in 60 to 120 s.
_SMALL_BESIDE_CLOUDS_GB: Final = 1.0


class SmallJobsProvisioner(Provisioner):
    """See `Provisioner`. A fleet that runs already stays where it is.

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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._outside = outside
        self._inside = InProcessProvisioner(root, clock=clock)
        self._place = place
        self._is_small = is_small
        self.name = outside.name

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        return self._chosen(spec).ensure(spec, authority)

    def _chosen(self, spec: FleetSpec) -> Provisioner:
        if self._inside.recorded(spec.key) is not None:
            return self._inside
        if spec.must_exist or not self.keeps_inside(spec.plan) or self._outside.describe(spec.key):
            return self._outside
        return self._inside

    def may_run_inside(self, volume_gb: float | None) -> bool:
        """Whether only a plan says that a job needs no fleet outside; None: of any volume."""
        if self._place == "auto":
            return volume_gb is None or volume_gb <= _SMALL_IN_ONE_REGION_GB
        return self._place == "never"

    def keeps_inside(self, plan: TransferPlan) -> bool:
        """Whether the gateways of a new fleet with this plan run inside this process."""
        return self._place == "never" or (self._place == "auto" and self._is_small(plan))

    def _of(self, fleet_key: str) -> Provisioner:
        return self._outside if self._inside.recorded(fleet_key) is None else self._inside

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        return self._of(fleet_key).describe(fleet_key)

    def recorded(self, fleet_key: str) -> Fleet | None:
        return self._of(fleet_key).recorded(fleet_key)

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        return self._of(fleet_key).destroy(fleet_key)

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        return self._of(fleet_key).log_tails(fleet_key, max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        (self._inside if fleet.provisioner == IN_PROCESS else self._outside).check_host(fleet)

    def sweep(self, deployment: str, **more: Any) -> SweepReport:
        return self._outside.sweep(deployment, **more)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return self._outside.quotas(regions)

    @property
    def provision_s(self) -> Mapping[str, float]:
        return self._outside.provision_s

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
