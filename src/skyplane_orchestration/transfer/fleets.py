"""Brings the fleets of one client up, opens control sessions with them, takes them down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.provisioner import (
    FleetSpec,
    FleetTimes,
    Provisioner,
    TeardownReport,
    require_fleet_limit,
    require_room,
)
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.fleet_control import FleetControl, SubmittedTransfer
from skyplane_orchestration.transfer.fleet_sessions import FleetSessions
from skyplane_orchestration.transfer.instance_meter import instances_usd
from skyplane_orchestration.transfer.replanning import PlanAgain, ensure_some_plan

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: How often, and at what interval, this process checks whether another one is done with a fleet.
_CHECKS: Final = 40
_CHECK_INTERVAL_S: Final = 0.25
#: Between looks at the gateways of a fleet, 10 s together.
_LOOK_WAITS_S: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 3.0, 3.0)


class Fleets:
    """The fleets that one client works with.

    Args:
        session: identifies this client among others that follow the same transfer.
        max_active_fleets: see `FleetSpec`.
    """

    def __init__(
        self,
        provisioner: Provisioner | None,
        authority: Callable[[str], Authority],
        *,
        session: str,
        times: FleetTimes,
        clock: Clock,
        max_active_fleets: int | None = None,
    ) -> None:
        require_fleet_limit(max_active_fleets)
        self._max_active_fleets = max_active_fleets
        self._provisioner = provisioner
        self.authority_of = authority
        self._session = session
        self._times = times
        self._clock = clock

    @property
    def provisioner(self) -> Provisioner:
        if self._provisioner is None:
            from skyplane_orchestration.provision.local import LocalProvisioner

            self._provisioner = LocalProvisioner()
        return self._provisioner

    def ensure(
        self,
        key: str,
        plan: TransferPlan,
        generation: int,
        deployment: str,
        *,
        must_exist: bool = False,
        is_limited: bool = False,
        is_to_probe: bool = False,
        plan_again: PlanAgain | None = None,
    ) -> Fleet:
        """The fleet of this key, up; see `Provisioner.ensure`.

        Args:
            is_limited: a new fleet starts only within `max_active_fleets`.
            is_to_probe: see `FleetSpec`.
            plan_again: makes another plan if a cloud refuses this one; None fails then.
        """

        def ensure(plan: TransferPlan) -> Fleet:
            spec = FleetSpec(
                key=key,
                generation=generation,
                deployment=deployment,
                plan=plan,
                times=self._times,
                max_active_fleets=self._max_active_fleets if is_limited else None,
                must_exist=must_exist,
                is_to_probe=is_to_probe,
            )
            return self.provisioner.ensure(spec, self.authority_of(key))

        with timed("provision"):
            if plan_again is None:
                return ensure(plan)
            return ensure_some_plan(
                plan, ensure, lambda: not self.provisioner.describe(key), plan_again
            )

    def is_counted(self, volume_gb: float | None) -> bool:
        """Whether a job of this volume, or of any, surely needs a fleet that a limit counts."""
        return self._max_active_fleets is not None and not self._may_run_inside(volume_gb)

    def _may_run_inside(self, volume_gb: float | None) -> bool:
        from skyplane_orchestration.provision.in_process.small_jobs import SmallJobsProvisioner

        chooser = self.provisioner
        return isinstance(chooser, SmallJobsProvisioner) and chooser.may_run_inside(volume_gb)

    def load(self, volume_gb: float | None) -> None:
        """Load the gateway, if a job of this volume may run inside this process."""
        if self._may_run_inside(volume_gb):
            with suppress(ModuleNotFoundError):  # The provisioner says what is missing.
                from skyplane_orchestration.provision.in_process import fleet_thread  # noqa: F401

    def require_room(self, key: str, deployment: str) -> None:
        """Raise TooManyFleets if a new fleet of this key would have to wait now."""
        require_room(self.provisioner, deployment, key, self._max_active_fleets)

    def rebuild(self, fleet: Fleet, *, is_to_probe: bool = False) -> Fleet:
        """The same fleet, up again, even if another process has torn it down."""
        plan = fleet.built_plan
        up = self.ensure(
            fleet.key, plan, fleet.generation, fleet.deployment, is_to_probe=is_to_probe
        )
        return up.as_before(fleet)

    def restore(self, fleet: Fleet) -> Fleet:
        """The same fleet, up again. Raises FleetLost: it was torn down."""
        plan = fleet.built_plan
        up = self.ensure(fleet.key, plan, fleet.generation, fleet.deployment, must_exist=True)
        return up.as_before(fleet)

    @contextmanager
    def control(self, fleet: Fleet) -> Iterator[FleetControl]:
        """Control of a fleet; its sessions close at the end of the block."""
        with self.sessions(fleet, self._session) as sessions:
            yield FleetControl(sessions, self.authority_of(fleet.key).sealing_key)

    def sessions(self, fleet: Fleet, name: str = "") -> FleetSessions:
        """Sessions with the gateways of a fleet; see `FleetSessions`."""
        dial_to = self.provisioner.dial_to
        return FleetSessions(fleet, self.authority_of(fleet.key), dial_to, name=name)

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        """Take a fleet down, by its document or its key; see `Client.teardown`."""
        if isinstance(fleet, Fleet) and not fleet.gateways:
            fleet = fleet.key  # The transfer may have found work since, and started gateways.
        key = fleet if isinstance(fleet, str) else fleet.key
        if isinstance(fleet, str):
            known = self.provisioner.recorded(fleet)
        else:
            self.provisioner.check_host(fleet)
            known = fleet
        tails: dict[str, str] = {}
        if known is not None:
            with timed("teardown: cancelling and logs"), self.control(known) as control:
                tails = control.cancel_unended()
        answered = set(tails)
        try:  # Logs that can be read without the gateways.
            tails = {**self.provisioner.log_tails(key), **tails}
        except SkyplaneError as error:
            log.warning("the logs of fleet %s cannot be read: %s", key, error)
        # A gateway that answered may end before the provisioner looks.
        with timed("teardown: waiting for their end"):
            stopped = answered.union(self.provisioner.destroy(key))
        cost = None
        # Instances that ended by themselves did so at a time that is not known.
        if known is not None and known.instances and stopped:
            cost = instances_usd(known, self._clock.wall())
        return TeardownReport(tuple(sorted(stopped)), tails, cost)

    def teardown_after_error(self, fleet: Fleet) -> None:
        """Take a fleet down; log an error instead of raising it."""
        try:
            report = self.teardown(fleet)
        except SkyplaneError as error:
            log.error("teardown of fleet %s failed as well: %s", fleet.key, error)
            return
        for node, tail in report.log_tails.items():
            log.info("end of the log of %s:\n%s", node, tail)

    def await_teardown(self, fleet: Fleet) -> None:
        """Wait for another process to tear a fleet down, for 10 s at most.

        Gateways that are started before that would be torn down as well.
        """
        before = self.provisioner.describe(fleet.key)
        # A look asks all regions of all clouds, and a cloud takes its time.
        for wait_s in _LOOK_WAITS_S:
            if not before:
                return
            self._clock.sleep(wait_s)
            if self.provisioner.describe(fleet.key) != before:
                return

    def is_unused(self, fleet: Fleet, submitted: SubmittedTransfer) -> bool:
        """Whether a fleet may be torn down; False if a transfer runs on it.

        Gives other processes that follow the ended transfer 10 s to fetch its status.
        """
        with self.control(fleet) as control:
            for _ in range(_CHECKS):
                if not control.followers(submitted):
                    break
                self._clock.sleep(_CHECK_INTERVAL_S)
            return control.drain_if_idle()
