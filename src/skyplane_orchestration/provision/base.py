"""What a provisioner promises, whichever cloud or machine it works on.

Every verb is idempotent and works from tags, or what stands for them, never from memory:
any worker may call any verb at any time, after a crash as well. The conformance suite in
the tests holds each provisioner to this page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.sweep_report import SweepReport

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """What fleet is wanted.

    Args:
        key: fleet key, hex (see `identity`); the same key always means the same fleet.
        generation: which rebuild of this fleet it is; part of the key already.
        deployment: whose fleet it is; a sweep takes only its own deployment's.
        plan: how many instances where, and the paths between them.
        start_within_s: first lease, which covers the wait in a scheduler's queue.
        lease_s: how long the gateways live unrenewed after that.
        hard_end_s: life from now, whatever happens.
        max_gateways_per_region: at most so many, however many are planned; None for the
            provisioner's own limit.
        must_exist: bring up only what was made and not torn down since; for a transfer
            that finds its fleet dead, and must not raise one that somebody took down.

    Raises ConfigurationInvalid for a missing deployment, a key that is not hex, or a time
    that is not positive.
    """

    key: str
    generation: int
    deployment: str
    plan: TransferPlan
    start_within_s: float = 900.0
    lease_s: float = 120.0
    hard_end_s: float = 86400.0
    max_gateways_per_region: int | None = None
    must_exist: bool = False

    def __post_init__(self) -> None:
        if not self.deployment:
            raise ConfigurationInvalid(
                "a fleet needs a deployment id, else another deployment's sweep may take it"
            )
        # The key becomes a directory, a tag and the wire's fleet id.
        if not self.key or set(self.key) - set("0123456789abcdef"):
            raise ConfigurationInvalid(f"fleet key {self.key!r} is not lower-case hex")
        for name in ("start_within_s", "lease_s", "hard_end_s"):
            if not getattr(self, name) > 0:
                raise ConfigurationInvalid(f"{name} must be positive")
        if self.max_gateways_per_region is not None and self.max_gateways_per_region < 1:
            raise ConfigurationInvalid("max_gateways_per_region must be at least 1")


@dataclass(frozen=True, slots=True)
class FoundGateway:
    """A gateway that exists, whether or not anybody recorded it.

    Args:
        node: `region tag/index`.
        details: the provisioner's own facts (`pid`, `instance_id`), as text.
    """

    node: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TeardownReport:
    """What a teardown did.

    Args:
        stopped: the gateways that were still there.
        log_tails: node -> the end of its log, as far as it could be had.
    """

    stopped: tuple[str, ...]
    log_tails: Mapping[str, str] = field(default_factory=dict)


class Provisioner(Protocol):
    """Brings gateways up and takes them down."""

    @property
    def name(self) -> str:
        """Short name, recorded in the fleet: `local`, `aws`, ..."""

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        """The fleet of `spec.key`, up and connected; the same one however often it is called.

        Gateways that live and answer are adopted and their lease begins anew, missing ones
        are started, those that hang or are no longer wanted are replaced or stopped. Two
        concurrent calls give one fleet.

        A failure, an interruption included, undoes itself before it is raised: what this
        call has started is gone. Gateways that were there before stay, since a transfer may
        run on them.

        Raises:
            ProvisionFailed: it did not come up; the message says which gateway and has the
                end of its log.
            ConfigurationInvalid: the request or the options cannot be met as they are.
            ForeignHost: the fleet exists where this process cannot reach it.
            NotAuthorised: the fleet exists under another fleet secret; left untouched.
            FleetLost: there is none, and `must_exist`.
            TeardownIncomplete: undoing failed; says what is left.
        """

    def find(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        """The fleet's gateways that exist now, sorted by node; recorded or not."""

    def recorded(self, fleet_key: str) -> Fleet | None:
        """What `ensure` returned last for a fleet that this process can reach.

        None where there is no record of it; its gateways may exist all the same.
        """

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        """End the fleet's gateways and remove all traces; the nodes that still ran.

        Idempotent, and silent when there is nothing.

        Raises TeardownIncomplete naming what is left.
        """

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        """Node -> end of its log, for gateways whose log can be had without their help.

        Complements the control API's `log_tail`, which only a living gateway answers.
        """

    def check_host(self, fleet: Fleet) -> None:
        """Raises ForeignHost when this process cannot reach the fleet from where it runs."""

    def sweep(
        self, deployment: str, *, dry_run: bool = False, older_than_s: float | None = None
    ) -> SweepReport:
        """Remove the deployment's fleets that nobody will come back for.

        Those are fleets past their hard end, fleets without a living gateway, and those
        made more than `older_than_s` ago, where that is given. A fleet that somebody is
        working on at this moment is kept. One failure does not stop the rest: see
        `SweepReport.left`.
        """
