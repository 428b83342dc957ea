"""`InstanceProvisioner`: the gateways of a fleet on instances of one or several clouds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError, TeardownIncomplete
from skyplane_orchestration.model.fleet import CLOUD, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT, lacks_own_name
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.control_sessions import is_living, open_sessions
from skyplane_orchestration.provision.fleet.admission import Admission
from skyplane_orchestration.provision.fleet.bring_up import BringUp
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.ingress_rules import odd_ranges
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.fleet.running_plan import plan_that_runs
from skyplane_orchestration.provision.fleet.teardown import end_fleet_in, sweep_clouds
from skyplane_orchestration.provision.fleet.worker_reach import worker_findings
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    Provisioner,
    require_made_by,
    require_room,
)
from skyplane_orchestration.provision.routes import node_names

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

DEFAULT_TAIL_BYTES: Final = 65536


class InstanceProvisioner(Provisioner):
    """See `Provisioner`. A plan over several clouds is one fleet.

    No lock protects a fleet: a teardown that meets an `ensure` makes it fail and undo itself.

    Args:
        bundle: reads the one that instances will be sent, before anything is made, and for the
            check. Raises ConfigurationInvalid.
    """

    def __init__(self, context: FleetContext, bundle: Callable[[], object] = lambda: None) -> None:
        self.name = context.name
        self._bundle = bundle
        self._context = context
        self._admission = Admission(context.clouds, context.options, context.clock, context.learn)

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        self._require_own_deployment(spec.deployment)
        self._bundle()
        began_s = self._context.clock.monotonic()
        for warning in odd_ranges(self._context.options.control_cidrs):
            log.warning("%s", warning.text)
        # No teardown would look there.
        if unknown := sorted(self._context.clouds.unusable(spec.plan.instances)):
            raise ConfigurationInvalid(
                f"the plan has {', '.join(unknown)}, which the account may not use, or which the"
                " setting regions of its cloud leaves out; plan with --provisioner cloud"
            )
        require_room(self, spec.deployment, spec.key, spec.max_active_fleets)
        self._admission.forget(spec.key)
        with closing(open_sessions(authority, self._context.connect)) as sessions:
            if not spec.must_exist and not spec.plan.replaces:
                ends = dict.fromkeys(spec.plan.ends)
                found = self._context.clouds.describe(spec.key, tuple(ends))
                self._admission.admit_to(found)
                spec = replace(spec, plan=plan_that_runs(spec.plan, found, sessions))
            instances = node_names(spec.plan)
            fleet = BringUp(
                spec, instances, authority, self._context, sessions, self._admission, began_s
            ).run()
        clouds = self._context.clouds
        urls = {tag: clouds.of(tag).console_url(spec.key, tag) for tag in sorted(instances)}
        return replace(fleet, console_urls={tag: url for tag, url in urls.items() if url})

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        alive = [one for one in self._describe_everywhere(fleet_key) if one.is_alive]
        return tuple(sorted({node for one in alive for node in one.nodes}))

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        clouds = self._context.clouds.all()
        self._admission.forget(fleet_key)
        try:
            # One cloud without an answer must not keep the instances of the others alive.
            stopped = in_parallel(
                clouds, lambda cloud: end_fleet_in(cloud, fleet_key, self._context)
            )
            return tuple(sorted(node for nodes in stopped for node in nodes))
        except TeardownIncomplete:
            raise
        except SkyplaneError as error:
            raise TeardownIncomplete(
                f"instances of fleet {fleet_key} may still run: {error}; run teardown again, or"
                " they end by themselves when their lease has expired"
            ) from error

    def log_tails(self, fleet_key: str, max_bytes: int = DEFAULT_TAIL_BYTES) -> Mapping[str, str]:
        """The consoles of ended instances: gateways that run answer the control API."""
        clouds = self._context.clouds
        ended = [one for one in self._describe_everywhere(fleet_key) if not one.is_alive]
        tails = in_parallel(ended, lambda one: clouds.of(one.region).console_tail(one, max_bytes))
        return {one.instance: tail for one, tail in zip(ended, tails, strict=True) if tail}

    def check_host(self, fleet: Fleet) -> None:
        require_made_by(self.name, fleet)
        # A teardown would end the instances of the other clouds only.
        for gateway in fleet.gateways:
            self._context.clouds.of(gateway.region)

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        return self._admission.dial_to(fleet_key, node)

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        self._require_own_deployment(deployment)

        def lives(key: str, alive: Sequence[Instance]) -> bool:
            gateways = (
                (node, one.control(process))
                for one in alive
                if one.address
                for process, node in enumerate(one.nodes)
            )
            try:
                if not dry_run:
                    self._admission.admit_to(alive)
            except SkyplaneError as error:
                log.warning("fleet %s may not let this worker in: %s", key, error)
            return is_living(key, gateways, authority_of, self._context.connect)

        return sweep_clouds(
            self._context, deployment, dry_run=dry_run, older_than_s=older_than_s, lives=lives
        )

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return self._context.clouds.quotas(regions)

    @property
    def provision_s(self) -> Mapping[str, float]:
        return self._context.options.provision_s

    def store_identity(self, region: str) -> str:
        return self._context.clouds.of(region).store_identity(region)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        context = self._context
        worker = worker_findings(context.clouds.all(), context.options, context.learn)
        found = list(odd_ranges(context.options.control_cidrs))
        try:
            self._bundle()
        except ConfigurationInvalid as error:
            found.append(Finding("bundle", False, str(error)))
        return (*found, *context.clouds.check(deployment), *worker)

    def _require_own_deployment(self, deployment: str) -> None:
        """Raise ConfigurationInvalid for the name that every installation has by default.

        Accounts of clouds are shared by many, and an account on a host mostly is not.
        """
        if self.name == CLOUD and (lack := lacks_own_name(deployment)):
            raise ConfigurationInvalid(lack)

    def _describe_everywhere(self, fleet_key: str) -> tuple[Instance, ...]:
        return self._context.clouds.describe(fleet_key, self._context.clouds.regions())
