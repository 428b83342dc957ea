"""The protocol of provisioners.

Each verb is idempotent and works from tags, or from their equivalent, never from memory. Any
worker may call any verb at any time, also after a crash. The conformance suite in the tests
checks each provisioner against this page.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from skyplane_gateway.common.dialing import Dial, directly
from skyplane_gateway.common.schema import check
from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.errors import ConfigurationInvalid, TooManyFleets
from skyplane_orchestration.model.fleet import CLOUD, SSH, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.job import require_positive
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: Fleet key -> the fleet's authority.
AuthorityOf = Callable[[str], "Authority"]


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """How long gateways live: see docs/explanation/recovery.md.

    Args:
        start_within_s: from provision to the transfer's start, a scheduler's queue included.
        lease_s: life after the last renewal.
        hard_end_s: life after provision, whatever happens.

    Raises ConfigurationInvalid for a time that is not positive.
    """

    start_within_s: float = 900.0
    lease_s: float = 120.0
    hard_end_s: float = 86400.0

    def __post_init__(self) -> None:
        check(self)
        for name, value in asdict(self).items():
            require_positive(name, value)


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """The fleet that `ensure` brings up.

    Args:
        key: fleet key, hex (see `identity`); the same key always means the same fleet.
        generation: number of the rebuild; part of the key.
        deployment: owner of the fleet; a sweep removes only fleets of its own deployment.
        plan: instances per region, and the paths between them.
        times: how long the gateways live.
        max_active_fleets: highest number of living fleets of the deployment with which a new fleet
            may start, itself included; None for no limit. An existing fleet is joined in any case.
        is_to_probe: firewalls also let its gateways reach one another along routes of a probe.
        must_exist: only repair an existing fleet. A transfer that has lost its fleet must
            not bring up a fleet that was torn down.

    Raises ConfigurationInvalid for a missing deployment, or a key that is not hex.
    """

    key: str
    generation: int
    deployment: str
    plan: TransferPlan
    times: FleetTimes = FleetTimes()
    max_active_fleets: int | None = None
    must_exist: bool = False
    is_to_probe: bool = False

    def __post_init__(self) -> None:
        check(self)
        if not self.deployment:
            raise ConfigurationInvalid(
                "a fleet needs a deployment id, or another deployment's sweep may remove it"
            )
        # The key is used as a directory, a tag and the fleet id on the wire.
        if not self.key or set(self.key) - set("0123456789abcdef"):
            raise ConfigurationInvalid(f"fleet key {self.key!r} is not lower-case hex")
        require_fleet_limit(self.max_active_fleets)


def require_fleet_limit(max_active_fleets: int | None) -> None:
    """Raise ConfigurationInvalid for a limit that allows no fleet at all."""
    if max_active_fleets is not None and max_active_fleets < 1:
        raise ConfigurationInvalid.about(
            "{max_active_fleets} must be at least 1, not {given}; omit it for no limit",
            given=max_active_fleets,
        )


def require_made_by(provisioner: str, fleet: Fleet) -> None:
    """Raise ConfigurationInvalid for a fleet of another provisioner, which this one does not see.

    A fleet without gateways is of none.
    """
    if fleet.provisioner not in ("", provisioner):
        name = {SSH: "hosts_file", CLOUD: "clouds_file"}.get(fleet.provisioner)
        raise ConfigurationInvalid(
            f"fleet {fleet.key} was made by the provisioner {fleet.provisioner!r}; use that one"
            + (Text(" with its ", FieldName(name)) if name else "")
        )


@dataclass(frozen=True, slots=True)
class TeardownReport:
    """What a teardown has ended.

    Args:
        stopped: the nodes that still ran.
        log_tails: node -> the readable end of its log.
        instance_usd: what the fleet's instances have cost from their launch to the end of the
            teardown, at the plan's prices; None without instances, without the plan, and if none
            of its gateways ran any more.
    """

    stopped: tuple[str, ...]
    log_tails: Mapping[str, str] = field(default_factory=dict)
    instance_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Args:
        name: what was checked, `aws credentials`.
        is_ok: whether it can be used.
        text: what is there, or what is missing and how to get it.
        is_warning: it can be used, and should be changed.
    """

    name: str
    is_ok: bool
    text: str
    is_warning: bool = False


class Provisioner(Protocol):
    """Starts and ends the gateways of fleets.

    No verb renews a lease: the lead of a transfer renews those of the fleet over the control
    API, and `ensure` restarts those of the gateways that it adopts.
    """

    #: Recorded in the fleet: `local`, `cloud`, ...
    name: str

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        """Bring up the fleet of `spec.key`; repeated and concurrent calls give one fleet.

        Adopts gateways that run and respond, and restarts their lease. Starts missing gateways,
        replaces those that do not respond, and ends superfluous ones. After a failure, the
        gateways that this call started are gone; others stay, since a transfer may use them.

        Raises:
            ProvisionFailed: a gateway did not come up; the message has the end of its log.
            ConfigurationInvalid: the request or the options are not possible.
            ForeignHost: this process cannot reach the fleet.
            NotAuthorised: the fleet has another fleet secret; it is left as it is.
            FleetLost: the fleet does not exist, and `must_exist` is set.
            TooManyFleets: the fleet does not exist, and `max_active_fleets` others live.
            TeardownIncomplete: a started gateway cannot be ended.
        """

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        """The nodes of the fleet's gateways that exist, with or without a record; sorted."""

    def recorded(self, fleet_key: str) -> Fleet | None:
        """The last result of `ensure` for a fleet that this process can reach.

        None if there is no record; gateways may exist nevertheless.
        """
        return None

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        """End the fleet's gateways and delete all its files; the nodes that still ran.

        A fleet that does not exist is not an error. Raises TeardownIncomplete.
        """

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        """Node -> end of its log, for logs that can be read without the gateway.

        Only a running gateway answers the control API's `log_tail`.
        """
        return {}

    def check_host(self, fleet: Fleet) -> None:
        """Raise ForeignHost if this process cannot reach the fleet.

        Raises ConfigurationInvalid for a fleet that another provisioner has made.
        """

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        """How this process connects with a gateway."""
        return directly

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        """Remove the deployment's fleets that are expired, without gateways, or too old.

        Keeps a locked fleet, and one past its hard end whose gateways say that they live on: with
        `authority_of` they are asked. Continues after a failure: `SweepReport.left` names the rest.
        """

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        """What may run in these regions, so that a plan stays within it.

        A region may have several quotas. One without any is limited by the grid alone.
        """
        return ()

    @property
    def provision_s(self) -> Mapping[str, float]:
        """Cloud -> seconds that `ensure` takes there, for plans; the planner estimates others."""
        return {}

    @property
    def has_internal_addresses(self) -> bool:
        """Whether instances of one cloud dial each other within its network, where it has one."""
        return True

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        """Whether the gateways of a new fleet with this plan are processes of this machine."""
        return False

    def store_identity(self, region: str) -> str:
        """The kind of stores that gateways of a region open with their own identity, if any."""
        return ""

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        """Whether fleets can be brought up; starts no gateway and leaves nothing.

        What is missing is a finding, not an error.

        Args:
            deployment: owner of the fleets; permissions may hold for things with its tag only.
        """
        return ()


def require_room(
    provisioner: Provisioner, deployment: str, fleet_key: str, max_active_fleets: int | None
) -> None:
    """Check that a fleet may start beside the living fleets of its deployment, or lives already.

    The count is that of a sweep: a fleet lives from its first resource to its last gateway. Two
    calls at the same time count the same fleets, so the caller needs a lock for an exact limit.

    Raises TooManyFleets.
    """
    if max_active_fleets is None:
        return
    report = provisioner.sweep(deployment, dry_run=True)
    for fleet in report.orphans:
        if not fleet.key:
            log.warning("max_active_fleets counts without some fleets: %s", fleet.error)
    living = report.kept
    if fleet_key not in living and len(living) >= max_active_fleets:
        raise TooManyFleets.of(deployment, max_active_fleets, living)
