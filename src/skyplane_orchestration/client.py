"""The client: plan, provision, transfer, tear down, sweep.

The operators, the assets and the command use only this module. Every error is one of `errors`;
a transfer that leaves objects uncopied always raises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.argument_checks import checks_methods
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import CLOUD, Fleet, GatewayCredentials
from skyplane_orchestration.model.identity import RunIdentity, lacks_own_name
from skyplane_orchestration.model.job import (
    ANY_REGION,
    VALUE_OF_TIME_USD_PER_HOUR,
    MinimizeCost,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.provisioner import (
    Finding,
    FleetTimes,
    Provisioner,
    TeardownReport,
)
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.open import open_location
from skyplane_orchestration.storage.rate_samples import require_learned_grid
from skyplane_orchestration.transfer import planning
from skyplane_orchestration.transfer.client_context import ClientContext, StopAt
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.fleet_slot_wait import OnFull
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials
from skyplane_orchestration.transfer.job_run import JobRun, provision, require_room
from skyplane_orchestration.transfer.learning import with_learned_rates
from skyplane_orchestration.transfer.run_options import OnStatus, RunArguments, RunOptions
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.security.authority import Authority, FleetSecret
    from skyplane_orchestration.storage.compare import VerifyReport
    from skyplane_orchestration.storage.manifest.place_manifest import PlaceManifest
    from skyplane_orchestration.storage.place_digest import SourceVersion
    from skyplane_orchestration.transfer.transfer_monitor import Monitor

__all__ = ["Client", "FleetTimes"]


@checks_methods
class Client:
    """Plans and runs transfers on behalf of one run.

    Args:
        identity: the run; a fresh one of this machine when None.
        provisioner: brings gateways up; processes on this machine when None.
        secret: shared by all workers of the deployment; None: `~/.config/skyplane-orch/secret`,
            made on first use.
        grid: name or directory of the grid to plan on.
        learned_grid: directory or URL below which ended transfers leave the rates of their edges,
            which plans use before those of the grid (docs/how-to/learned-grid.md). None: neither.
        price_overrides: file of agreed egress prices, which replace those of the grid.
        credentials: resolves `credential_ref`s.
        times: leases of the fleets that it provisions.
        max_active_fleets: highest number of living fleets of the deployment with which a new one
            may start, itself included; see docs/how-to/operate.md. None: no limit.
        value_of_time_usd_per_hour: of a job without an objective; see `MinimizeCost`.
        gateway_credentials: what gateways on other machines get; see docs/explanation/security.md.
        manifest_key: private key that signs manifests: a PEM file, or `env:NAME`; see
            docs/how-to/manifest.md. None: they are not signed.
        stop_at: when its transfers are stopped at the latest. They fail, and a resume or a retry
            continues them. None: never.
        poll_s: longest pause between two polls of a running transfer.
        clock, rng: measure and wait, and make the ids of this client.
    """

    def __init__(
        self,
        *,
        identity: RunIdentity | None = None,
        provisioner: Provisioner | None = None,
        secret: FleetSecret | None = None,
        grid: str | Path = "shipped",
        learned_grid: str | Path | None = None,
        price_overrides: str | Path | None = None,
        credentials: CredentialSources | None = None,
        times: FleetTimes | None = None,
        max_active_fleets: int | None = None,
        value_of_time_usd_per_hour: float = VALUE_OF_TIME_USD_PER_HOUR,
        gateway_credentials: GatewayCredentials = "limited",
        manifest_key: str | None = None,
        stop_at: StopAt | None = None,
        poll_s: float = 1.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if secret is not None and not hasattr(secret, "value"):
            # Its class is loaded later, and its value is not shown.
            raise ConfigurationInvalid("secret must be a FleetSecret, not this")
        rng = rng or random.SystemRandom()
        self.identity = identity or RunIdentity("local", "python", rng.randbytes(16).hex())
        self._secret = secret
        self._grid_name = grid
        self._price_overrides = price_overrides
        self._learned_grid = None if learned_grid is None else require_learned_grid(learned_grid)
        clock = clock or Clock()
        self._fleets = Fleets(
            provisioner,
            self.authority,
            session=rng.randbytes(8).hex(),
            times=times or FleetTimes(),
            clock=clock,
            max_active_fleets=max_active_fleets,
        )
        self._credentials = credentials or CredentialSources()
        self._context = ClientContext(
            self.identity,
            self._fleets,
            SentCredentials(self._credentials, gateway_credentials, clock),
            clock,
            rng,
            lambda: self.grid,
            poll_s,
            MinimizeCost(value_of_time_usd_per_hour=value_of_time_usd_per_hour),
            stop_at,
            self._learned_grid,
            manifest_key,
        )

    # -- plan

    @cached_property
    def grid(self) -> Grid:
        """The grid, loaded on first use. Raises GridInvalid for a bad grid or price file."""
        from skyplane_orchestration.grids import load_grid

        grid = load_grid(self._grid_name, price_overrides=self._price_overrides)
        if self._learned_grid is None:
            return grid
        now_unix_s = self._context.clock.wall()
        return with_learned_rates(grid, self._learned_grid, self._credentials, now_unix_s)

    @property
    def default_objective(self) -> MinimizeCost:
        """The objective of a job that names none."""
        return self._context.default_objective

    def grid_within_quotas(self, ends: Sequence[str], policy: Policy = ANY_REGION) -> Grid:
        """The grid for plans between these regions, with the quotas of the provisioner's account.

        `plan` and `plan_to_all` use it themselves.
        """
        return planning.within_quotas(self.grid, self.provisioner, ends, policy)

    def job_run(self, job: TransferJob) -> JobRun:
        """One run of a job: its checks, its plan, its transfer. Make one for each run."""
        return JobRun(self._context, job)

    def plan(self, job: TransferJob, *, may_assume: bool = False) -> TransferPlan:
        """The best plan for a job.

        Asks the stores for missing regions, and lists the source if `volume_gb` is missing. Stays
        within the quotas of the provisioner's account.

        Args:
            may_assume: where the gateways run on this machine, an end whose region neither its
                store nor the job names counts as in that of the other end, with a note in the plan.

        Raises:
            InvalidLocation: a region is not known.
            UnknownRegion, PlanInfeasible: no plan, and why.
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        return self.job_run(job).plan(may_assume=may_assume)

    def plan_to_all(self, job: TransferJob, further: Sequence[Location]) -> TransferPlan:
        """One plan for the job's destination and further ones; `run_to_all` runs it.

        Raises ConfigurationInvalid when two ends lie in one region; else as `plan`.
        """
        return planning.plan_job_to_all(
            self.grid, job, further, self._credentials, self.provisioner
        )

    def plan_together(self, jobs: Sequence[TransferJob]) -> TransferPlan:
        """One plan for `measured` jobs that run one after another on one fleet.

        Its volume is their sum. Raises ConfigurationInvalid where their regions differ; else as
        `plan`.
        """
        return self.plan(planning.summed(jobs))

    # -- places, without a change

    def listing(self, location: Location, *, recursive: bool = False) -> Iterator[ObjectInfo | str]:
        """The objects whose keys begin with that of a place, in the order of keys.

        Without `recursive` those of its folder alone, and the keys of the folders in it. Reads the
        store page by page. Raises StoreError, also after some rows.
        """
        from skyplane_orchestration.storage.folder_listing import one_level

        place = preflight.located(location, self._credentials)
        with open_location(place, self._credentials) as store:
            yield from store.list(place.key) if recursive else one_level(store, place.key)

    def source_version(
        self,
        location: Location,
        *,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> SourceVersion:
        """What a place holds now: a digest of keys, sizes and ETags, objects and bytes.

        Lists the place and reads no object. Raises NotFound for an object that is not there, or
        another StoreError.
        """
        from skyplane_orchestration.storage.place_digest import source_version

        place = preflight.located(location, self._credentials)
        return source_version(
            place, self._credentials, recursive=recursive, include=include, exclude=exclude
        )

    def manifest(self, location: Location, *, manifest_at: str = "auto") -> PlaceManifest:
        """The manifest of a folder that runs have copied to; see docs/how-to/manifest.md.

        Args:
            manifest_at: that of the runs, for a manifest that lies apart from the copies.

        Raises NotFound if there is none, ManifestUnreadable, or another StoreError.
        """
        from skyplane_orchestration.storage.manifest.place_manifest import PlaceManifest

        place = preflight.located(location, self._credentials)
        return PlaceManifest(place, self._credentials, manifest_at)

    def check_place(self, location: Location) -> None:
        """Check that a bucket exists and may be listed. Raises StoreError."""
        preflight.check_place(preflight.located(location, self._credentials), self._credentials)

    def verify(
        self,
        job: TransferJob,
        *,
        with_extra: bool = False,
        listing_only: bool = False,
        download: bool = False,
        parallel: int | None = None,
    ) -> VerifyReport:
        """Compare the objects that a job copies with what is at its destination, one by one.

        Compares the stores' own CRC32C where it is trusted; otherwise this process reads the
        object. See docs/how-to/verify.md.

        Args:
            with_extra: also look for objects that only the destination has.
            listing_only: compare names and sizes; read no object.
            download: read all objects at both ends, and compare their SHA-256.
            parallel: objects that are compared at the same time; 8 when None.

        Raises:
            EmptySource, NotFound: there is nothing to compare with.
            StoreError: an end is missing, closed to us, or cannot be listed.
        """
        from skyplane_orchestration.storage.compare import PARALLEL_READS, verify_job

        source, destination = preflight.located_ends(job.source, job.destination, self._credentials)
        return verify_job(
            replace(job, source=source, destination=destination),
            self._credentials,
            with_extra=with_extra,
            listing_only=listing_only,
            download=download,
            parallel=PARALLEL_READS if parallel is None else parallel,
        )

    # -- provision and teardown

    def check_provisioner(self) -> tuple[Finding, ...]:
        """Whether fleets can be brought up; see `Provisioner.check`. Raises as that does."""
        deployment = self.identity.deployment
        found = self.provisioner.check(deployment)
        if self.provisioner.name != CLOUD:
            return found
        lack = lacks_own_name(deployment)
        return (Finding("deployment", not lack, lack or deployment), *found)

    @property
    def provisioner(self) -> Provisioner:
        """What brings gateways up."""
        return self._fleets.provisioner

    def authority(self, fleet_key: str) -> Authority:
        """What proves to a fleet that this process may control it."""
        from skyplane_orchestration.security.authority import Authority, FleetSecret

        if self._secret is None:
            self._secret = FleetSecret.from_file()
        return Authority(self._secret, fleet_key)

    def provision(
        self,
        plan: TransferPlan,
        *,
        job: TransferJob | None = None,
        generation: int = 0,
        on_full: OnFull | None = None,
    ) -> Fleet:
        """Find or create the fleet of this run for a plan. Raises ProvisionFailed.

        The fleet of a plan that needs no gateways has none.

        Args:
            job: that of the plan. If a cloud refuses an instance, the fleet may then get another
                plan, as the job's policy says (`on_no_capacity`); use `Fleet.plan` from then on.
                Without a job the plan is fixed.
            on_full: see `RunOptions`.
        """
        return provision(self._context, plan, job, generation, on_full)

    def profile(
        self,
        regions: Sequence[str],
        *,
        max_usd: float,
        on_plan: Callable[[TransferPlan], None] = lambda _: None,
    ) -> list[EdgeMeasurement]:
        """Measure all ordered pairs of regions; see `transfer.profile.profiled`."""
        from skyplane_orchestration.transfer.profile import profiled

        return profiled(self._context, regions, max_usd, on_plan)

    def require_room(self) -> None:
        """Raise TooManyFleets if `provision` would have to wait now."""
        require_room(self._context)

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        """Take a fleet down, by its document or, when that is lost, by its key. Idempotent.

        Cancels its unfinished transfers and fetches the ends of the gateways' logs. It keeps what a
        resume handle needs; see docs/explanation/recovery.md. Raises TeardownIncomplete.
        """
        return self._fleets.teardown(fleet)

    def teardown_after_error(self, fleet: Fleet) -> None:
        """Take a fleet down; log an error of that, so that it does not hide an earlier one."""
        self._fleets.teardown_after_error(fleet)

    def sweep(
        self,
        *,
        destinations: Sequence[Location] = (),
        orphaned_uploads: bool = False,
        recursive: bool = True,
        dry_run: bool = False,
        older_than_s: float | None = None,
    ) -> SweepReport:
        """Remove this deployment's orphaned fleets, and what expired transfers left behind.

        Journals do not name a deployment, so the sweep of a destination includes all transfers
        there. Errors do not stop it: see `SweepReport.left` and docs/how-to/sweep.md.

        Args:
            destinations: where transfers have written to, or folders above.
            orphaned_uploads: also abort old uploads there that no journal names.
            recursive: look for journals at any depth, which lists every object there.
            dry_run: change nothing.
            older_than_s: also living fleets made longer ago than this.

        Raises ConfigurationInvalid, before any change, for an unusable destination or run root.
        """
        from skyplane_orchestration.recovery.destination_sweep import SweepRule, opened_for_sweep

        with opened_for_sweep(destinations, self._credentials) as sweep:
            fleets = self.provisioner.sweep(
                self.identity.deployment,
                dry_run=dry_run,
                older_than_s=older_than_s,
                authority_of=self._fleets.authority_of,
            )
            rule = SweepRule(self._context.clock.wall(), dry_run, orphaned_uploads, recursive)
            return replace(fleets, places=sweep(rule))

    # -- transfer

    def submit(self, job: TransferJob, fleet: Fleet) -> SubmittedTransfer:
        """Start a job on a fleet, or join it when it runs there already; `finish` does the rest.

        Raises:
            ForeignHost: the fleet is on another machine and only reachable there.
            FleetLost: its gateways are gone.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        return self.job_run(job).on_fleet(fleet).submit()

    def transfer(
        self, job: TransferJob, fleet: Fleet, **arguments: Unpack[RunArguments]
    ) -> TransferResult:
        """Run a job on a fleet to its end; a fleet that is gone is built once more.

        A fleet without gateways has none because there was nothing to copy. Then this call is
        `run`: it looks again, and starts and ends gateways if there is work by now.

        Args:
            arguments: see `RunOptions`.

        Raises:
            TransferFailed: an object is not at the destination; carries the result.
            StoreError: it succeeded, but the manifest cannot be written.
            SkyplaneError: it could not start.
        """
        if not fleet.gateways:
            return self.run(job, **arguments)
        return self.job_run(job).on_fleet(fleet, RunOptions(**arguments)).run()

    def run(
        self,
        job: TransferJob,
        *,
        plan: TransferPlan | None = None,
        **arguments: Unpack[RunArguments],
    ) -> TransferResult:
        """Plan, provision, transfer and tear down in one call.

        Without a plan it first checks the destination and the deletes of the job.

        Starts no fleet if there is nothing to do, no plan is given and no manifest is wanted. Takes
        the fleet down after any error or interruption.

        Args:
            arguments: see `RunOptions`.

        Raises as `JobRun.check`, `transfer` and `teardown`.
        """
        return self.job_run(job).run(plan, **arguments)

    def run_to_all(
        self,
        job: TransferJob,
        further: Sequence[Location],
        *,
        plan: TransferPlan | None = None,
        **arguments: Unpack[RunArguments],
    ) -> dict[str, TransferResult]:
        """Copy to the job's destination and to further ones, on one fleet: URL -> its result.

        What destinations share is sent once. Each has its own result, and one that fails does not
        stop the others. A destination that has everything already gets no gateways. Without a plan,
        a second destination in a region, and one in that of the source, follow by themselves.

        Args:
            plan: from `plan_to_all`, with the destinations in this order.
            arguments: see `RunOptions`; without a manifest. `on_status` is called by a thread for
                each destination.

        Raises:
            DestinationsFailed: with the results of all destinations that have one.
            SkyplaneError: no transfer was started.
        """
        from skyplane_orchestration.transfer.fan_out import FanOut

        jobs = [job, *(replace(job, destination=one) for one in further)]
        return FanOut(self._context, jobs, RunOptions(**arguments)).run(plan)

    def cancel(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        """Stop a transfer and abort what it has begun. Idempotent."""
        with self._fleets.control(fleet) as control:
            control.cancel(submitted)

    # -- a transfer that another process has submitted

    def watch(self, watched: WatchedTransfer, *, on_status: OnStatus | None = None) -> Monitor:
        """Polls a submitted transfer, in any process that has the fleet secret."""
        request = TransferRequest(watched.submitted.transfer_key, watched.job, self._context.sent)
        context = self._context.stopping_by(watched.deadline_unix_s)
        from skyplane_orchestration.transfer.transfer_monitor import Monitor

        return Monitor(request, watched.fleet, watched.submitted, context, on_status=on_status)

    def finish(self, watched: WatchedTransfer, **arguments: Unpack[RunArguments]) -> TransferResult:
        """Follow a submitted transfer to its end, and end a fleet that it owns.

        docs/explanation/recovery.md describes failover. A transfer that has cost the policy's
        `max_job_usd`, or whose deadline passes, is stopped; a resume or a retry can continue it.
        Args and errors as `transfer`.
        """
        options, submitted = RunOptions(**arguments), watched.submitted
        context = self._context.stopping_by(watched.deadline_unix_s)
        run = JobRun(context, watched.job, submitted.transfer_key)
        transfer = run.on_fleet(watched.fleet, options)
        if watched.owns_fleet:
            return transfer.wait_and_tear_down(submitted)
        return transfer.wait(submitted)

    def resume(
        self,
        handle: str | ResumeHandle,
        *,
        max_job_usd: float | None = None,
        **arguments: Unpack[RunArguments],
    ) -> TransferResult:
        """Continue a failed transfer, by the resume handle of its result.

        It continues in a newer epoch, on its own fleet. A fleet that is still up stays up; a fleet
        that this call brings up is taken down.

        Args:
            max_job_usd: what it may cost from now on; as much as at first when None.
            arguments: see `RunOptions`.

        Raises:
            ConfigurationInvalid: the handle is not valid, or too old.
            TransferFailed, TeardownIncomplete: as `run`.
        """
        options = RunOptions(**arguments)
        found = ResumeHandle.from_text(handle) if isinstance(handle, str) else handle
        found.require_live(self._context.clock.wall())
        if max_job_usd is not None:
            found = found.with_budget(max_job_usd)
        preflight.require_usable(found.job, options.manifest)
        was_up = bool(self.provisioner.describe(found.fleet_key))
        fleet = self._fleets.ensure(found.fleet_key, found.plan, found.generation, found.deployment)
        run = JobRun(self._context, found.job, found.transfer_key).on_fleet(fleet, options)
        return run.run_and_tear_down(least_epoch=found.epoch + 1, keeps_fleet=was_up)
