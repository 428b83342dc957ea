"""The runs of one client: on a fleet, from plan to teardown, or by a resume handle."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayDraining,
    GatewayUnreachable,
    LaunchRefused,
    TooManyDeletes,
    TooManyFleets,
    TransferFailed,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import RefusedLaunch, TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.transfer.control import TransferRequest
from skyplane_orchestration.transfer.fleet_wait import FleetWait, OnFull
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.in_the_way import InTheWay, put_back_others, with_put_back
from skyplane_orchestration.transfer.monitor import OnStatus, StopAt
from skyplane_orchestration.transfer.planning import OnMeasured
from skyplane_orchestration.transfer.replanning import PlanAgain
from skyplane_orchestration.transfer.run import (
    RunOptions,
    TransferRun,
    check_deletes,
    transfer_key_of,
)
from skyplane_orchestration.transfer.watch import TransferWatch, WatchedTransfer

Found = TypeVar("Found")

#: Makes the plan of a job; calls the last argument before the search.
MakePlan = Callable[[TransferJob, SourceListing, OnMeasured], TransferPlan]

log = logging.getLogger(__name__)

#: Why a plan that comes without its job is not made again.
_FIXED_PLAN: Final = "the plan comes without its job, so it is not made again here: plan once more"


class Runs:
    """See `Client`, whose methods these are."""

    def __init__(
        self,
        identity: RunIdentity,
        fleets: Fleets,
        credentials: CredentialSources,
        *,
        poll_s: float,
        clock: Clock,
        rng: random.Random,
        stop_at: StopAt | None,
        plan_again: Callable[[TransferJob, TransferPlan, RefusedLaunch], TransferPlan],
    ) -> None:
        self._identity = identity
        self._fleets = fleets
        self._credentials = credentials
        self._poll_s = poll_s
        self._clock = clock
        self._rng = rng
        self._stop_at = stop_at
        self._plan_again = plan_again
        self._checked_deletes: tuple[TransferJob, InTheWay] | None = None

    def check_deletes(self, job: TransferJob, listing: SourceListing | None = None) -> None:
        key = transfer_key_of(self._identity, job)
        found = check_deletes(job, self._credentials, self._rng, listing, key)
        self._checked_deletes = (job, found)

    def start(
        self,
        job: TransferJob,
        fleet: Fleet,
        transfer_key: str | None = None,
        options: RunOptions | None = None,
        listing: SourceListing | None = None,
    ) -> TransferRun:
        """A run on a fleet, which has sent nothing yet; under the key of `job` by default."""
        key = transfer_key or transfer_key_of(self._identity, job)
        checked = self._checked_deletes
        return TransferRun(
            TransferRequest(key, job, self._credentials),
            fleet,
            self._fleets,
            options or RunOptions(),
            poll_s=self._poll_s,
            clock=self._clock,
            rng=self._rng,
            stop_at=self._stop_at,
            checked_deletes=checked[1] if checked is not None and checked[0] == job else None,
            listing=listing,
            may_be_repeated=self._identity.may_be_repeated,
        )

    def _planner_for(self, job: TransferJob | None) -> PlanAgain | None:
        """Makes another plan for a job whose policy allows that."""
        if job is None or job.policy.on_no_capacity == "fail":
            return None
        return partial(self._plan_again, job)

    def provision(
        self,
        plan: TransferPlan,
        generation: int = 0,
        job: TransferJob | None = None,
        on_full: OnFull | None = None,
    ) -> Fleet:
        return self._with_room(lambda: self._provision(plan, generation, job), on_full)

    def _with_room(self, call: Callable[[], Found], on_full: OnFull | None) -> Found:
        """What the call returns once the deployment has room for a fleet."""
        wait = FleetWait()
        while True:
            try:
                return call()
            except TooManyFleets as error:
                if on_full is None:
                    raise
                on_full(error, wait)
                pause_s = wait.pause_s(self._rng)
                self._clock.sleep(pause_s)
                wait = wait.after(pause_s)

    def _provision(self, plan: TransferPlan, generation: int, job: TransferJob | None) -> Fleet:
        key, deployment = self._identity.fleet_key(generation), self._identity.deployment
        if not plan.needs_gateways:
            return Fleet.without_gateways(key, deployment, plan)
        try:
            return self._fleets.ensure(
                key,
                plan,
                generation,
                deployment,
                is_limited=True,
                plan_again=self._planner_for(job),
            )
        except LaunchRefused as error:
            if job is None:
                raise error.adding(_FIXED_PLAN) from error
            raise

    def require_room(self) -> None:
        self._fleets.require_room(self._identity.fleet_key(), self._identity.deployment)

    def compared(
        self, job: TransferJob, listing: SourceListing | None = None
    ) -> TransferResult | None:
        """The result of a job that has nothing to copy; else None. Changes nothing."""
        if self._fleets.provisioner.describe(self._identity.fleet_key()):
            return None
        from skyplane_orchestration.transfer.up_to_date import result_if_unchanged

        key = transfer_key_of(self._identity, job)
        return result_if_unchanged(job, key, self._credentials, self._clock, listing)

    def unchanged(
        self, job: TransferJob, listing: SourceListing | None = None
    ) -> TransferResult | None:
        result = self.compared(job, listing)
        if result is None or not job.delete:
            return result
        from skyplane_orchestration.transfer.deletes import delete_extra

        for warning in put_back_others(job, result.transfer_key):
            log.warning("%s", warning)
        result = delete_extra(job, self._credentials, result, self._rng)
        result = with_put_back(job, result)
        if not result.succeeded:
            raise TransferFailed(
                result.error,
                result=result,
                is_permanent=result.error_code in (ConfigurationInvalid.code, TooManyDeletes.code),
            )
        return result

    def run(
        self,
        job: TransferJob,
        plan: TransferPlan | None,
        make_plan: MakePlan,
        options: RunOptions,
        listing: SourceListing | None = None,
    ) -> TransferResult:
        """From the plan to the teardown."""
        preflight.require_usable(job, options.manifest)
        listing = listing or SourceListing(self._clock)
        if plan is None:
            found = self._planned(job, make_plan, options, listing)
            if isinstance(found, TransferResult):
                return found
            plan = found
        fleet = self.provision(plan, job=job, on_full=options.on_full)
        return self.start(job, fleet, options=options, listing=listing).run_and_tear_down()

    def _planned(
        self, job: TransferJob, make_plan: MakePlan, options: RunOptions, listing: SourceListing
    ) -> TransferPlan | TransferResult:
        """The plan of a job that is not planned yet, or its result if there is nothing to copy.

        The fleets are counted first: a plan made while there is no room would be old later.
        """
        preflight.check_destination(job, self._credentials)
        done = None if options.manifest else self.unchanged(job, listing)
        if done is not None:
            return done

        def await_room(job: TransferJob) -> None:
            if self._fleets.is_counted(job.volume_gb):
                self._with_room(self.require_room, options.on_full)

        return make_plan(job, listing, await_room)

    def begin(
        self,
        job: TransferJob,
        fleet: Fleet | None,
        make_plan: MakePlan,
        options: RunOptions,
        listing: SourceListing,
    ) -> TransferResult | WatchedTransfer:
        """From the plan to the submit, or the submit alone; see `Client.begin`."""
        if fleet is not None and fleet.gateways:
            run = self.start(job, fleet, options=options, listing=listing)
            submitted = run.begin()
            return WatchedTransfer(job, run.fleet, submitted)
        preflight.require_usable(job, options.manifest)
        plan = self._planned(job, make_plan, options, listing)
        if isinstance(plan, TransferResult):
            return plan
        fleet = self.provision(plan, job=job, on_full=options.on_full)
        run = self.start(job, fleet, options=options, listing=listing)
        if fleet.provisioner == IN_PROCESS or not fleet.gateways:
            return run.run_and_tear_down()
        if options.on_fleet is not None:
            options.on_fleet(fleet)
        submitted = run.begin_or_tear_down()
        return WatchedTransfer(job, run.fleet, submitted, owns_fleet=True)

    def finish(self, watched: WatchedTransfer, options: RunOptions) -> TransferResult:
        submitted = watched.submitted
        run = self.start(watched.job, watched.fleet, submitted.transfer_key, options)
        if watched.owns_fleet:
            return run.wait_and_tear_down(submitted)
        return run.wait(submitted)

    def watch(self, watched: WatchedTransfer, on_status: OnStatus | None) -> TransferWatch:
        request = TransferRequest(watched.submitted.transfer_key, watched.job, self._credentials)
        return TransferWatch(request, watched, self._fleets.control, self._clock, on_status)

    def is_running(self, watched: WatchedTransfer) -> bool:
        """Whether the lead answers that the transfer runs."""
        try:
            with self._fleets.control(watched.fleet) as control:
                return control.status(watched.submitted).is_running
        except (GatewayDraining, GatewayUnreachable, UnknownTransfer):
            return False

    def stop(self, watched: WatchedTransfer, reason: str) -> None:
        try:
            with self._fleets.control(watched.fleet) as control:
                control.stop(watched.submitted, reason)
        except BaseException:
            if watched.owns_fleet:
                self._fleets.teardown_after_error(watched.fleet)
            raise

    def cancel(self, watched: WatchedTransfer) -> None:
        with self._fleets.control(watched.fleet) as control:
            control.cancel(watched.submitted)
        if watched.owns_fleet:
            self._fleets.teardown(watched.fleet)

    def resume(
        self, handle: ResumeHandle, options: RunOptions, max_job_usd: float | None
    ) -> TransferResult:
        handle.require_live(self._clock.wall())
        if max_job_usd is not None:
            handle = handle.with_budget(max_job_usd)
        preflight.require_usable(handle.job, options.manifest)
        was_up = bool(self._fleets.provisioner.describe(handle.fleet_key))
        fleet = self._fleets.ensure(
            handle.fleet_key, handle.plan, handle.generation, handle.deployment
        )
        run = self.start(handle.job, fleet, handle.transfer_key, options)
        return run.run_and_tear_down(least_epoch=handle.epoch + 1, keeps_fleet=was_up)
