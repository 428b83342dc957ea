"""One run of a job: its checks, its plan, its fleet and its transfer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from skyplane_gateway.common.job_options import JobOptions
from skyplane_gateway.common.object_filter import ALL_OBJECTS
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.schema import encode
from skyplane_gateway.config import Group
from skyplane_gateway.selection.selection_rule import KEEPING_RULES
from skyplane_gateway.selection.selector import Selection
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    LaunchRefused,
    TooManyDeletes,
    TransferFailed,
)
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import RefusedLaunch, TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.server_side_eligibility import why_not_server_side
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer import planning
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.first_requests import FirstRequests
from skyplane_orchestration.transfer.fleet_control import TransferRequest
from skyplane_orchestration.transfer.fleet_slot_wait import OnFull, with_room
from skyplane_orchestration.transfer.manifest_record import record_run, signing_key
from skyplane_orchestration.transfer.move import check_move
from skyplane_orchestration.transfer.path_conflicts import InTheWay, put_back_others, with_put_back
from skyplane_orchestration.transfer.replanning import PlanAgain
from skyplane_orchestration.transfer.run_options import RunArguments, RunOptions
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from skyplane_orchestration.transfer.deletes import DeletePlan
    from skyplane_orchestration.transfer.transfer_run import TransferRun

log = logging.getLogger(__name__)

#: Why a plan that comes without its job is not made again.
_FIXED_PLAN: Final = (
    "the plan was given without its job, so it cannot be made again here; make a new plan"
)


class JobRun:
    """The steps of one run of a job. They list the source once, and check its deletes once.

    Keep it no longer than the run: a step leaves out what comes to the source within a minute
    after an earlier step has listed it.
    """

    def __init__(
        self, context: ClientContext, job: TransferJob, transfer_key: str | None = None
    ) -> None:
        self._context = context
        self._job = job
        self._key = transfer_key or transfer_key_of(context.identity, job)
        self._listing = SourceListing(context.clock)
        self._in_the_way: InTheWay | None = None
        self._asked: FirstRequests | None = None

    # -- checks and plan

    def check(self) -> None:
        """Check that the destination exists, and the deletes of the job; change nothing.

        Those are of a move at its source, and of `delete` at the destination. The transfer of this
        run does not check them again.

        Raises ConfigurationInvalid if one end lies in the other, TooManyDeletes or StoreError.
        """
        job, credentials = self._job, self._context.credentials
        preflight.require_usable(job)
        has_work = job.move or job.conflict not in KEEPING_RULES  # Else there may be none.
        self._asked = asked = FirstRequests(
            job, self._key, credentials, self._listing, with_regions=has_work
        )
        with timed("check of the destination"):
            if has_work:
                asked.await_sent()
                self._load()
            asked.check_destination()
        self._checked_deletes(self._job)

    def _load(self) -> None:
        """Load what the next steps need, while the answers of the stores are on their way."""
        from skyplane_orchestration import planner  # noqa: F401
        from skyplane_orchestration.transfer import transfer_run  # noqa: F401

        self._context.grid()
        self._context.fleets.load(self._job.volume_gb)

    def _checked_deletes(self, job: TransferJob) -> InTheWay:
        """What is in the way of the job's copies. Checks its deletes, once in a run."""
        if self._in_the_way is not None:
            return self._in_the_way
        credentials, rng = self._context.credentials, self._context.rng
        found: InTheWay = {}
        if job.move:
            check_move(job, credentials, rng)
        if job.delete:
            from skyplane_orchestration.transfer.deletes import check_extra

            with timed("listing of both ends for the deletes"):
                plan = check_extra(job, credentials, rng, self._listing, self._key)
            found = plan.in_the_way
        self._in_the_way = found
        return found

    def preview(self) -> Iterator[Selection]:
        """What a transfer would do with each object now; errors may come after some of them."""
        return preflight.previewed(self._located(), self._context.credentials)

    def preview_deletes(self) -> tuple[DeletePlan, Iterator[ObjectInfo]]:
        """What `delete` would remove at the destination now. Raises StoreError."""
        from skyplane_orchestration.transfer.deletes import preview_extra

        return preview_extra(self._job, self._context.credentials)

    def may_copy_server_side(self) -> bool:
        """Whether the store may copy objects of the job itself. Raises StoreError."""
        return not why_not_server_side(self._located())

    def check_credentials(self) -> tuple[Finding, ...]:
        """Which credentials gateways would get for each end; see docs/explanation/security.md.

        Raises StoreError where the region of an end cannot be found.
        """
        context = self._context
        return context.sent.findings(self._located(), context.fleets.provisioner)

    def require_credentials(self, plan: TransferPlan) -> None:
        """Get the credentials for the gateways of a plan, before any of them starts.

        Raises CredentialsTooWide where there are none that are limited to the places of the job.
        """
        with timed("check of the credentials for gateways"):
            self._context.sent.require(self._job, plan, self._context.fleets.provisioner)

    def _located(self) -> TransferJob:
        return preflight.locate(self._job, self._context.credentials, may_assume=True)

    def has_nothing_to_copy(self) -> bool:
        """Whether `unchanged` would find nothing to copy. Changes nothing."""
        return self._compared() is not None

    def _compared(self) -> TransferResult | None:
        context = self._context
        if context.fleets.provisioner.describe(context.identity.fleet_key()):
            return None
        from skyplane_orchestration.transfer.nothing_to_do import result_if_unchanged

        return result_if_unchanged(
            self._job, self._key, context.credentials, context.clock, self._listing, self._asked
        )

    def unchanged(self) -> TransferResult | None:
        """The success of a job that has nothing to copy, which needs no gateways; else None.

        With `delete` it also deletes what only the destination has. Raises TransferFailed where
        that fails.

        None too if the ends cannot be listed, or have too many keys. None too if an earlier try
        of the transfer has left a journal or a fleet.
        """
        job, result = self._job, self._compared()
        if result is None or not job.delete:
            return result
        from skyplane_orchestration.transfer.deletes import delete_extra

        for warning in put_back_others(job, result.transfer_key):
            log.warning("%s", warning)

        context = self._context
        note = partial(record_run, context, job, ())
        result = delete_extra(job, context.credentials, result, context.rng, note=note)
        result = with_put_back(job, result)
        if not result.succeeded:
            raise TransferFailed(
                result.error,
                result=result,
                is_permanent=result.error_code in (ConfigurationInvalid.code, TooManyDeletes.code),
            )
        return result

    def measured(self) -> tuple[TransferJob, tuple[str, ...]]:
        """The job with its regions, volume and number of objects; notes that say where from.

        Lists the source (up to a cap) if no volume is given. Raises EmptySource or StoreError.
        """
        return planning.measured(self._job, self._context.credentials, self._listing)

    def plan(
        self, on_measured: planning.OnMeasured = lambda _: None, *, may_assume: bool = False
    ) -> TransferPlan:
        """See `Client.plan`."""
        context = self._context
        job = self._job
        if job.objective is None:
            job = replace(job, objective=context.default_objective)
        return planning.plan_job(
            context.grid(),
            job,
            context.credentials,
            context.fleets.provisioner,
            self._listing,
            on_measured,
            may_assume=may_assume,
            ends=None if self._asked is None else self._asked.ends,
        )

    # -- from the plan to the end

    def run(
        self, plan: TransferPlan | None = None, **arguments: Unpack[RunArguments]
    ) -> TransferResult:
        """From the plan to the teardown; see `Client.run`."""
        options = RunOptions(**arguments)
        run = self._start(plan, options)
        return run if isinstance(run, TransferResult) else run.run_and_tear_down()

    def begin(
        self, fleet: Fleet | None = None, **arguments: Unpack[RunArguments]
    ) -> TransferResult | WatchedTransfer:
        """As `Client.transfer`, or as `run` without a fleet, but return after the submit.

        `Client.finish` does the rest. Returns the result where nothing was to be copied, or where
        this process has copied the objects itself. Takes a fleet of its own down after an error.
        Args and errors as `Client.transfer` and `run`.
        """
        options = RunOptions(**arguments)
        if fleet is not None and fleet.gateways:
            given = self.on_fleet(fleet, options)
            submitted = given.begin()
            return WatchedTransfer(self._job, given.fleet, submitted)
        run = self._start(None, options)
        if isinstance(run, TransferResult):
            return run
        if run.fleet.provisioner == IN_PROCESS or not run.fleet.gateways:
            return run.run_and_tear_down()
        if options.on_fleet is not None:
            options.on_fleet(run.fleet)
        submitted = run.begin_or_tear_down()
        return WatchedTransfer(self._job, run.fleet, submitted, owns_fleet=True)

    def on_fleet(
        self, fleet: Fleet, options: RunOptions | None = None, group: Group | None = None
    ) -> TransferRun:
        """The transfer of this run on a fleet, which has sent nothing yet.

        Args:
            group: see `TransferRequest`.
        """
        # Imported here: a job with nothing to copy needs none of it.
        from skyplane_orchestration.transfer.transfer_run import TransferRun

        context = self._context
        if fleet.plan.trees:
            region = self._located().destination.region
            if region not in fleet.plan.destinations:
                raise ConfigurationInvalid(f"the fleet leads to no destination in {region}")
            fleet = fleet.towards(region)
        request = TransferRequest(self._key, self._job, context.sent, group)
        return TransferRun(
            request,
            fleet,
            context,
            options or RunOptions(),
            self._listing,
            self._checked_deletes,
            self._asked,
        )

    def _start(
        self, plan: TransferPlan | None, options: RunOptions
    ) -> TransferRun | TransferResult:
        """The transfer on a fleet for this job, or its result if there is nothing to copy."""
        preflight.require_usable(self._job, options.manifest)
        signing_key(self._context)
        if plan is None:
            self.check()
            done = None if options.manifest else self.unchanged()
            if done is not None:
                return done
            plan = self.plan(lambda job: self._await_room(job, options.on_full), may_assume=True)
        fleet = provision(self._context, plan, self._job, on_full=options.on_full)
        return self.on_fleet(fleet, options)

    def _await_room(self, job: TransferJob, on_full: OnFull | None) -> None:
        """Count the fleets before the plan: one made while there is no room would be old later."""
        context = self._context
        if context.fleets.is_counted(job.volume_gb):
            with_room(lambda: require_room(context), on_full, context.clock, context.rng)


def require_room(context: ClientContext) -> None:
    """See `Client.require_room`."""
    identity = context.identity
    context.fleets.require_room(identity.fleet_key(), identity.deployment)


def provision(
    context: ClientContext,
    plan: TransferPlan,
    job: TransferJob | None = None,
    generation: int = 0,
    on_full: OnFull | None = None,
) -> Fleet:
    """See `Client.provision`."""
    key, deployment = context.identity.fleet_key(generation), context.identity.deployment

    def ensure() -> Fleet:
        return context.fleets.ensure(
            key, plan, generation, deployment, is_limited=True, plan_again=_planner(context, job)
        )

    if not plan.needs_gateways:
        return Fleet.without_gateways(key, deployment, plan)
    if job is not None:
        JobRun(context, job).require_credentials(plan)
    try:
        fleet = with_room(ensure, on_full, context.clock, context.rng)
    except LaunchRefused as error:
        if job is None:
            raise error.adding(_FIXED_PLAN) from error
        raise
    if job is None:
        return fleet
    from skyplane_orchestration.transfer.probe import probed

    return probed(context, job, fleet)


def _planner(context: ClientContext, job: TransferJob | None) -> PlanAgain | None:
    """Makes another plan for a job whose policy allows that."""
    if job is None or job.policy.on_no_capacity == "fail":
        return None

    def plan_again(plan: TransferPlan, refused: RefusedLaunch) -> TransferPlan:
        return planning.plan_job_again(
            context.grid(), job, plan, refused, context.fleets.provisioner
        )

    return plan_again


#: Rules that are part of a transfer key even if they are the defaults.
_ALWAYS_IN_KEY: Final = ("recursive", "include", "exclude", "conflict")


def transfer_key_of(identity: RunIdentity, job: TransferJob) -> str:
    """The identity of a job within a run; the same for every retry."""
    rule = {name: getattr(job, name) for name in _ALWAYS_IN_KEY}
    if job.object_filter != ALL_OBJECTS:
        rule["filter"] = encode(job.object_filter)
    for one in fields(JobOptions):
        value = getattr(job, one.name)
        is_in_transfer_key = one.metadata.get("is_in_transfer_key", True)
        # A newer option leaves the keys of jobs alone that do not use it.
        if one.name not in rule and is_in_transfer_key and value != one.default:
            rule[one.name] = value
    if job.encrypt != "auto":
        rule["encrypt"] = job.encrypt
    given = ("content_type", "cache_control", "headers", "object_metadata")
    rule |= {name: getattr(job, name) for name in given if getattr(job, name)}
    return identity.transfer_key(job.source, job.destination, json.dumps(rule))
