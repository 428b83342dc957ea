"""`InstanceProvisioner` on three clouds in memory, for the tests of fleets over several clouds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.provision.fleet.memory_cloud import (
    MemoryAccount,
    MemoryCloud,
    MemorySession,
    StandInBoot,
)
from tests.provision.samples import SECRET, A, B, C, make_plan

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.fleet.options import LEAST_POLL_S, InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.security.authority import Authority

#: Nobody has to wait for a cloud in memory.
HASTY: Final = replace(SYSTEM_CLOCK, sleep=lambda seconds: time.sleep(seconds / 100))


class Killed(BaseException):
    """A worker was killed with SIGKILL: it makes no further call."""


def killed_before(verb: str) -> Callable[[str], None]:
    """For a worker that is killed before its first call of a verb."""
    dead: list[str] = []

    def die(called: str) -> None:
        if dead or called == verb:
            dead.append(called)
            raise Killed

    return die


class InstancesHarness:
    """Each call of `provisioner` is a worker of its own, which knows nothing of the others."""

    def __init__(self) -> None:
        self.account = MemoryAccount()
        self.options = InstanceOptions(
            control_cidrs=("203.0.113.7/32",),
            ready_timeout_s=20.0,
            end_timeout_s=20.0,
            poll_s=LEAST_POLL_S,
        )

    def provisioner(
        self,
        *,
        clock: Clock = HASTY,
        die: Callable[[str], None] = lambda verb: None,
        clouds: Sequence[str] = ("aws", "gcp", "azure"),
        **options: Any,
    ) -> InstanceProvisioner:
        self.account.failing.clear()

        def connect(host: str, port: int, context: Any, expected_uri: str) -> MemorySession:
            return MemorySession(self.account, (host, port), expected_uri)

        return InstanceProvisioner(
            [MemoryCloud(name, self.account, die) for name in clouds],
            StandInBoot(self.account),
            replace(self.options, **options),
            connect=connect,
            clock=clock,
        )

    def failing(self) -> InstanceProvisioner:
        """One for which instance `B/0` does not come up."""
        made = self.provisioner()
        self.account.failing.add(f"{B}/0")
        return made

    def late(self, seconds: float) -> InstanceProvisioner:
        """One that looks at the world so many seconds from now."""
        return self.provisioner(clock=replace(HASTY, wall=lambda: time.time() + seconds))

    def spec(self, key: str = "f1ee7", **changes: Any) -> FleetSpec:
        plan = make_plan([((A, C), 4.0), ((A, B, C), 2.0)], {A: 2, B: 1, C: 2})
        spec = FleetSpec(key=key, generation=0, deployment="test", plan=plan)
        return replace(spec, **changes)

    def authority(self, spec: FleetSpec) -> Authority:
        return Authority(SECRET, spec.key)

    def kill(self, gateway: GatewayHandle) -> None:
        self.account.end(gateway.details["instance_id"], "Server.SpotInstanceTermination")

    def crash_after_launch(self, spec: FleetSpec) -> None:
        """A worker that is killed when gateways run and nothing else is done."""
        try:
            self.provisioner(die=killed_before("set_ingress")).ensure(spec, self.authority(spec))
        except Killed:
            return
        raise AssertionError("it was not killed")

    def running(self) -> list[str]:
        return [one.instance for one in self.account.alive()]

    def traces(self) -> list[str]:
        firewalls = [f"the firewall of {region}" for region, _ in self.account.firewalls]
        return [*self.running(), *firewalls]
