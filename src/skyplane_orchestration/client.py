"""The one door: plan, provision, transfer, teardown, sweep.

Operators, assets and the command are thin callers of `Client`; whatever can go wrong
is an error of the one tree (`errors`), and a transfer that is not whole always raises.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skyplane_gateway.selection import Selection
from skyplane_orchestration import survey
from skyplane_orchestration.conclusion import conclude, require_success
from skyplane_orchestration.credentials import CredentialSources
from skyplane_orchestration.errors import (
    FleetLost,
    SkyplaneError,
)
from skyplane_orchestration.fleet import Fleet
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.identity import RunIdentity
from skyplane_orchestration.job import NO_LIMITS, Limits, Objective, TransferJob
from skyplane_orchestration.location import Location
from skyplane_orchestration.multicast_plan import MulticastPlan
from skyplane_orchestration.outcome import TransferStatus
from skyplane_orchestration.plan import TransferPlan
from skyplane_orchestration.provision.base import (
    FleetSpec,
    Provisioner,
    SweepReport,
    TeardownReport,
)
from skyplane_orchestration.result import TransferResult
from skyplane_orchestration.sessions import FleetSessions
from skyplane_orchestration.steering import Steering, SubmittedTransfer
from skyplane_orchestration.watch import Hands, OnStatus, OnSubmitted, Watch

if TYPE_CHECKING:
    from skyplane_orchestration.authority import Authority, FleetSecret
    from skyplane_orchestration.verification import VerifyReport

log = logging.getLogger(__name__)

_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """How long gateways live: see DESIGN of leases in docs/architecture.md.

    Args:
        start_within_s: from provision to the transfer's start, a scheduler's queue included.
        lease_s: life after the last renewal.
        hard_end_s: life after provision, whatever happens.
    """

    start_within_s: float = 900.0
    lease_s: float = 120.0
    hard_end_s: float = 86400.0


class Client:
    """Plans and runs transfers on behalf of one run.

    Args:
        identity: whose run it is; a fresh one of this machine when None.
        provisioner: brings gateways up; processes on this machine when None.
        secret: what all workers of the deployment share; the file
            `~/.config/skyplane-orch/secret`, made on first use, when None.
        grid: name or directory of the grid to plan on.
        price_overrides: file of agreed egress prices, before all that the grid says.
        credentials: resolves `credential_ref`s.
        times: leases of the fleets that it provisions.
        poll_s: pause between two looks at a running transfer.
        sleep: for tests.
    """

    def __init__(
        self,
        *,
        identity: RunIdentity | None = None,
        provisioner: Provisioner | None = None,
        secret: FleetSecret | None = None,
        grid: str | Path = "shipped",
        price_overrides: str | Path | None = None,
        credentials: CredentialSources | None = None,
        times: FleetTimes | None = None,
        poll_s: float = _POLL_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.identity = identity or RunIdentity("local", "python", uuid.uuid4().hex)
        self._provisioner = provisioner
        self._secret = secret
        self._grid_name = grid
        self._price_overrides = price_overrides
        self._grid: Grid | None = None
        self._credentials = credentials or CredentialSources()
        self._times = times or FleetTimes()
        self._poll_s = poll_s
        self._sleep = sleep

    # -- plan

    @property
    def grid(self) -> Grid:
        """The grid, loaded on first use.

        Raises:
            GridInvalid: its files are broken, or the file of agreed prices is.
        """
        if self._grid is None:
            self._grid = load_grid(self._grid_name, price_overrides=self._price_overrides)
        return self._grid

    def plan(self, job: TransferJob, *, proof_s: float | None = None) -> TransferPlan:
        """The best plan for a job.

        Needs no cloud when the regions and `volume_gb` are given; otherwise the buckets
        are asked for their region and the source is listed (up to a cap).

        Args:
            proof_s: seconds for each attempt to prove that nothing is better; see
                `planner.plan`.

        Raises:
            UnknownRegion, PlanInfeasible: no plan, and why.
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        from skyplane_orchestration import planner

        job, notes = self.measured(job)
        ends = job.source.region, job.destination.region
        plan = planner.plan(
            self.grid,
            *ends,
            job.objective or self.default_objective(*ends, job.limits),
            volume_gb=job.volume_gb,
            objects=job.objects,
            limits=job.limits,
            policy=job.policy,
            proof_s=planner.PROOF_S if proof_s is None else proof_s,
        )
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan

    def plan_to_all(
        self, job: TransferJob, further: Sequence[Location], *, proof_s: float | None = None
    ) -> MulticastPlan:
        """One plan that brings the job's source to its destination and to further ones.

        For looking and comparing: gateways of this release bring data to one destination.

        Raises:
            ConfigurationInvalid: two destinations lie in one region, or one in the source's.
            UnknownRegion, PlanInfeasible: no plan, and why.
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        from skyplane_orchestration import planner

        job, notes = self.measured(job)
        others = [
            survey.locate(replace(job, destination=one), self._credentials) for one in further
        ]
        destinations = [one.destination.region for one in (job, *others)]
        source = job.source.region
        plan = planner.multicast_plan(
            self.grid,
            source,
            destinations,
            job.objective
            or planner.default_multicast_objective(self.grid, source, destinations, job.limits),
            volume_gb=job.volume_gb,
            objects=job.objects,
            limits=job.limits,
            policy=job.policy,
            proof_s=planner.PROOF_S if proof_s is None else proof_s,
        )
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan

    def measured(self, job: TransferJob) -> tuple[TransferJob, tuple[str, ...]]:
        """The job with its regions, volume and number of objects, and what limits these.

        The source is listed (up to a cap) where no volume is given.

        Raises:
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        job = survey.locate(job, self._credentials)
        if job.volume_gb is not None:
            return job, ()
        volume = survey.measure(job, self._credentials)
        job = replace(job, volume_gb=volume.size_gb or None, objects=volume.objects)
        if not volume.is_capped:
            return job, ()
        return job, (f"the listing stopped at {volume.objects} objects; there is more to move",)

    def default_objective(
        self, source: str, destination: str, limits: Limits = NO_LIMITS
    ) -> Objective:
        """At least the rate of the direct path with one instance at each end (region tags).

        Raises:
            UnknownRegion, PlanInfeasible: there is no such path.
        """
        from skyplane_orchestration import planner

        return planner.default_objective(self.grid, source, destination, limits)

    def preview(self, job: TransferJob) -> list[Selection]:
        """What a transfer would do with each object now; writes nothing.

        Raises:
            StoreError: an end cannot be listed. EmptySource: there is nothing to copy.
        """
        return survey.preview(survey.locate(job, self._credentials), self._credentials)

    def check_destination(self, job: TransferJob) -> None:
        """See that the destination is there before anything is built for it.

        Raises:
            StoreError: it is missing, closed to us, or does not answer.
        """
        survey.check_destination(job, self._credentials)

    def check_move(self, job: TransferJob) -> None:
        """See that a move may delete at its source; nothing to do for a copy.

        Raises:
            ConfigurationInvalid: one end lies in the other.
            StoreError: the source may not be deleted from, or does not answer.
        """
        if job.move:
            from skyplane_orchestration.moving import check_move

            check_move(job, self._credentials)

    def check_place(self, location: Location) -> None:
        """See that a bucket is there and may be listed.

        Raises:
            StoreError: it is missing, closed to us, or does not answer.
        """
        survey.check_place(survey.located(location, self._credentials), self._credentials)

    def verify(
        self,
        source: Location,
        destination: Location,
        *,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_empty: bool = False,
        with_extra: bool = False,
        listing_only: bool = False,
        parallel: int | None = None,
    ) -> VerifyReport:
        """Compare two places object by object, under the key rule of a copy.

        Checksums are the stores' own CRC32C where these can be trusted; otherwise the
        object is read, here, without gateways. Needs permission to list and read both.

        Raises:
            EmptySource, NotFound: there is nothing to compare with.
            StoreError: an end is missing, closed to us, or cannot be listed.
        """
        from skyplane_orchestration.verification import PARALLEL_READS, verify_job

        job = TransferJob(
            survey.located(source, self._credentials),
            survey.located(destination, self._credentials),
            recursive=recursive,
            include=tuple(include),
            exclude=tuple(exclude),
            allow_empty=allow_empty,
        )
        return verify_job(
            job,
            self._credentials,
            with_extra=with_extra,
            listing_only=listing_only,
            parallel=PARALLEL_READS if parallel is None else parallel,
        )

    # -- provision and teardown

    @property
    def provisioner(self) -> Provisioner:
        if self._provisioner is None:
            from skyplane_orchestration.provision.local import LocalProvisioner

            self._provisioner = LocalProvisioner()
        return self._provisioner

    def authority(self, fleet_key: str) -> Authority:
        """What proves to a fleet that this process may steer it."""
        from skyplane_orchestration.authority import Authority, FleetSecret

        if self._secret is None:
            self._secret = FleetSecret.from_file()
        return Authority(self._secret, fleet_key)

    def provision(self, plan: TransferPlan, *, generation: int = 0) -> Fleet:
        """Find or create the fleet of this run for a plan.

        Raises:
            ProvisionFailed: it did not come up; what had come up was taken down.
        """
        return self._ensure(self.identity.fleet_key(generation), plan, generation)

    def _ensure(
        self, key: str, plan: TransferPlan, generation: int, *, must_exist: bool = False
    ) -> Fleet:
        spec = FleetSpec(
            key=key,
            generation=generation,
            deployment=self.identity.deployment,
            plan=plan,
            start_within_s=self._times.start_within_s,
            lease_s=self._times.lease_s,
            hard_end_s=self._times.hard_end_s,
            must_exist=must_exist,
        )
        return self.provisioner.ensure(spec, self.authority(key))

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        """Take a fleet down, by its document or, when that is lost, by its key.

        Cancels what runs on it (which aborts open uploads), fetches the ends of the
        gateways' logs, deletes by tag. Idempotent; tolerates what is gone.

        Raises:
            TeardownIncomplete: something is left; the message names it.
        """
        key = fleet if isinstance(fleet, str) else fleet.key
        if not isinstance(fleet, str):
            self.provisioner.check_host(fleet)
        ended: dict[str, str] = {}
        if not isinstance(fleet, str):
            with self._steering(fleet) as steering:
                ended = steering.wind_up()
        tails = dict(ended)
        for node, tail in self.provisioner.log_tails(key).items():
            tails.setdefault(node, tail)
        # One that ended when it was asked to may be gone before the provisioner looks.
        stopped = {*ended, *self.provisioner.destroy(key)}
        return TeardownReport(tuple(sorted(stopped)), tails)

    def sweep(self, *, dry_run: bool = False, older_than_s: float | None = None) -> SweepReport:
        """Remove this deployment's fleets that nobody will come back for."""
        return self.provisioner.sweep(
            self.identity.deployment, dry_run=dry_run, older_than_s=older_than_s
        )

    # -- transfer

    def transfer_key(self, job: TransferJob) -> str:
        """The identity of a job within this run; the same for every retry."""
        rule = {
            "recursive": job.recursive,
            "include": list(job.include),
            "exclude": list(job.exclude),
            "conflict": job.conflict,
        }
        return self.identity.transfer_key(job.source, job.destination, json.dumps(rule))

    def submit(self, job: TransferJob, fleet: Fleet) -> SubmittedTransfer:
        """Start a job on a fleet, or join it when it runs there already.

        Raises:
            ForeignHost: the fleet is on another machine and only reachable there.
            FleetLost: its gateways are gone.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        self.provisioner.check_host(fleet)
        survey.require_ends_apart(job)
        self.check_move(job)
        # The plan has looked up what the job may have left open.
        job = replace(
            job,
            source=job.source.at(job.source.region or fleet.plan.src),
            destination=job.destination.at(job.destination.region or fleet.plan.dst),
        )
        with self._steering(fleet) as steering:
            return steering.submit(self.transfer_key(job), job, self._credentials)

    def status(self, fleet: Fleet, submitted: SubmittedTransfer) -> TransferStatus:
        """How far a submitted transfer is; also keeps its lead alive.

        Raises:
            GatewayUnreachable: the lead does not answer.
        """
        with self._steering(fleet) as steering:
            return steering.status(submitted)

    def wait(
        self,
        job: TransferJob,
        fleet: Fleet,
        submitted: SubmittedTransfer,
        *,
        on_status: OnStatus | None = None,
        on_submitted: OnSubmitted | None = None,
        manifest: str | None = None,
    ) -> TransferResult:
        """Poll a submitted transfer to its end.

        A lead that stays silent is replaced by the next source gateway that answers, in a
        new epoch. Where no source or no sink answers, the fleet is brought up again, once,
        unless it was torn down meanwhile. See docs/architecture.md, "When gateways die".

        Args:
            on_submitted: told whenever another gateway leads, and on which fleet.
            manifest: path or URL where the whole list of objects is written (Parquet).

        Raises:
            TransferFailed: it ended otherwise than well; carries the result.
            StoreError: it ended well, but the manifest cannot be written.
        """
        with Watch(
            job, fleet, submitted, self._hands, on_status=on_status, on_submitted=on_submitted
        ) as watch:
            status = watch.run()
            result = conclude(job, watch, status, self._credentials, manifest=manifest)
        return require_success(result, status)

    @property
    def _hands(self) -> Hands:
        return Hands(
            open=self._steering,
            ensure=lambda fleet: self._ensure(
                fleet.key, fleet.plan, fleet.generation, must_exist=True
            ),
            pause=lambda: self._sleep(self._poll_s),
            credentials=self._credentials,
        )

    @contextmanager
    def _steering(self, fleet: Fleet) -> Iterator[Steering]:
        with FleetSessions(fleet, self.authority(fleet.key)) as sessions:
            yield Steering(sessions)

    def transfer(
        self,
        job: TransferJob,
        fleet: Fleet,
        *,
        on_submitted: OnSubmitted | None = None,
        on_status: OnStatus | None = None,
        manifest: str | None = None,
    ) -> TransferResult:
        """Run a job on a fleet to its end; a fleet that is gone is built once more.

        Args:
            on_submitted: told what to cancel, and on which fleet, should it come to that;
                again whenever that changes.

        Raises:
            TransferFailed: some object is not at the destination; carries the result.
            SkyplaneError: it could not start.
        """
        try:
            submitted = self.submit(job, fleet)
        except FleetLost as error:
            log.warning("%s; building the fleet once more", error)
            fleet = self._ensure(fleet.key, fleet.plan, fleet.generation)
            submitted = self.submit(job, fleet)
        if on_submitted is not None:
            on_submitted(fleet, submitted)
        return self.wait(
            job,
            fleet,
            submitted,
            on_status=on_status,
            on_submitted=on_submitted,
            manifest=manifest,
        )

    def cancel(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        """Stop a transfer and abort what it has begun. Idempotent."""
        with self._steering(fleet) as steering:
            steering.cancel(submitted)

    def run(
        self,
        job: TransferJob,
        *,
        plan: TransferPlan | None = None,
        on_fleet: Callable[[Fleet], None] | None = None,
        on_status: OnStatus | None = None,
        manifest: str | None = None,
    ) -> TransferResult:
        """Plan, provision, transfer and tear down in one call.

        The fleet is taken down whatever happens, an interruption included.

        Raises:
            TransferFailed: as `transfer`. TeardownIncomplete: as `teardown`, unless the
            transfer's own error is on its way.
        """
        plan = plan or self.plan(job)
        fleet = self.provision(plan)
        try:
            if on_fleet is not None:
                on_fleet(fleet)
            result = self.transfer(job, fleet, on_status=on_status, manifest=manifest)
        except BaseException:
            self.teardown_after_error(fleet)
            raise
        self.teardown(fleet)
        return result

    def teardown_after_error(self, fleet: Fleet) -> None:
        """Take down without hiding the error that is on its way."""
        try:
            report = self.teardown(fleet)
        except SkyplaneError as error:
            log.error("teardown of fleet %s failed as well: %s", fleet.key, error)
            return
        for node, tail in report.log_tails.items():
            log.info("end of the log of %s:\n%s", node, tail)
