"""The one door: plan, provision, transfer, teardown, sweep.

Operators, assets and the command are thin callers of `Client`; whatever can go wrong
is an error of the one tree (`errors`), and a transfer that is not whole always raises.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import FleetLost, GatewayDraining, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.base import FleetSpec, Provisioner, TeardownReport
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.control import Steering, SubmittedTransfer
from skyplane_orchestration.transfer.finalize import (
    clear_interrupted,
    conclude,
    require_success,
    with_handle,
)
from skyplane_orchestration.transfer.monitor import (
    Hands,
    OnStatus,
    OnSubmitted,
    Pauses,
    Watch,
    Whereabouts,
)
from skyplane_orchestration.transfer.planning import Planning
from skyplane_orchestration.transfer.sessions import FleetSessions

if TYPE_CHECKING:
    from skyplane_orchestration.model.resume_handle import ResumeHandle
    from skyplane_orchestration.security.authority import Authority, FleetSecret

log = logging.getLogger(__name__)

_POLL_S: Final = 1.0

#: Before a call takes its fleet down, others that follow its transfer have so long to hear of
#: its end: so many looks, and the pause between two.
_LOOKS_FOR_OTHERS: Final = 40
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """How long gateways live: see DESIGN of leases in docs/explanation/recovery.md.

    Args:
        start_within_s: from provision to the transfer's start, a scheduler's queue included.
        lease_s: life after the last renewal.
        hard_end_s: life after provision, whatever happens.
    """

    start_within_s: float = 900.0
    lease_s: float = 120.0
    hard_end_s: float = 86400.0


class Client(Planning):
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
        poll_s: longest pause between two looks at a running transfer; the first ones are
            shorter.
        sleep, now: for tests; `now` is wall time in unix seconds.
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
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(grid, price_overrides, credentials)
        self.identity = identity or RunIdentity("local", "python", uuid.uuid4().hex)
        self._provisioner = provisioner
        self._secret = secret
        self._session = secrets.token_hex(8)
        self._times = times or FleetTimes()
        self._poll_s = poll_s
        self._sleep = sleep
        self._now = now

    # -- provision and teardown

    @property
    def provisioner(self) -> Provisioner:
        if self._provisioner is None:
            from skyplane_orchestration.provision.local import LocalProvisioner

            self._provisioner = LocalProvisioner()
        return self._provisioner

    def authority(self, fleet_key: str) -> Authority:
        """What proves to a fleet that this process may steer it."""
        from skyplane_orchestration.security.authority import Authority, FleetSecret

        if self._secret is None:
            self._secret = FleetSecret.from_file()
        return Authority(self._secret, fleet_key)

    def provision(self, plan: TransferPlan, *, generation: int = 0) -> Fleet:
        """Find or create the fleet of this run for a plan.

        Raises:
            ProvisionFailed: it did not come up; what had come up was taken down.
        """
        key = self.identity.fleet_key(generation)
        return self._ensure(key, plan, generation, self.identity.deployment)

    def _ensure(
        self,
        key: str,
        plan: TransferPlan,
        generation: int,
        deployment: str,
        *,
        must_exist: bool = False,
    ) -> Fleet:
        spec = FleetSpec(
            key=key,
            generation=generation,
            deployment=deployment,
            plan=plan,
            start_within_s=self._times.start_within_s,
            lease_s=self._times.lease_s,
            hard_end_s=self._times.hard_end_s,
            must_exist=must_exist,
        )
        with timed("provision"):
            return self.provisioner.ensure(spec, self.authority(key))

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        """Take a fleet down, by its document or, when that is lost, by its key.

        Cancels what has not ended on it (which aborts its open uploads and removes its
        journals), fetches the ends of the gateways' logs, deletes by tag. What a failed
        transfer left for its resume handle is kept: `sweep` of the destination removes it
        in time.
        Idempotent; tolerates what is gone.

        Raises:
            TeardownIncomplete: something is left; the message names it.
        """
        key = fleet if isinstance(fleet, str) else fleet.key
        if isinstance(fleet, str):
            known = self.provisioner.recorded(fleet)
        else:
            self.provisioner.check_host(fleet)
            known = fleet
        ended: dict[str, str] = {}
        if known is not None:
            with timed("teardown: cancelling and logs"), self._steering(known) as steering:
                ended = steering.wind_up()
        tails = dict(ended)
        for node, tail in self.provisioner.log_tails(key).items():
            tails.setdefault(node, tail)
        # One that ended when it was asked to may be gone before the provisioner looks.
        with timed("teardown: waiting for their end"):
            stopped = {*ended, *self.provisioner.destroy(key)}
        return TeardownReport(tuple(sorted(stopped)), tails)

    def sweep(
        self,
        *,
        destinations: Sequence[Location] = (),
        orphaned_uploads: bool = False,
        recursive: bool = True,
        dry_run: bool = False,
        older_than_s: float | None = None,
    ) -> SweepReport:
        """Remove this deployment's fleets, and transfers, that nobody will come back for.

        At destinations: transfers whose journal has not been written for `JOURNAL_KEPT_S`
        (the time of a resume handle and an hour): the uploads that they name are aborted,
        then their journals deleted. Whoever runs them, journals do not say which
        deployment's they are. One failure does not stop the rest: see `SweepReport.left`.

        Args:
            destinations: where transfers have written to, or folders above.
            orphaned_uploads: abort there too what no journal names and is as old; without
                this it is only listed, since it may be another tool's.
            recursive: look for journals at any depth, which lists every object there;
                False: in the destinations themselves alone.
            dry_run: touch nothing.
            older_than_s: also living fleets made longer ago than this.

        Raises:
            ConfigurationInvalid: a destination cannot be opened as it was given, or the run
                root not be used; nothing was touched.
        """
        from skyplane_orchestration.recovery.sweep import Destinations, SweepRule

        with Destinations(destinations, self._credentials) as places:
            fleets = self.provisioner.sweep(
                self.identity.deployment, dry_run=dry_run, older_than_s=older_than_s
            )
            rule = SweepRule(self._now(), dry_run, orphaned_uploads, recursive)
            return replace(fleets, places=places.sweep(rule))

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

    def submit(
        self,
        job: TransferJob,
        fleet: Fleet,
        *,
        transfer_key: str | None = None,
        least_epoch: int = 1,
    ) -> SubmittedTransfer:
        """Start a job on a fleet, or join it when it runs there already.

        Args:
            transfer_key: go on with that transfer; this run's own when None.
            least_epoch: begin no older epoch.

        Raises:
            ForeignHost: the fleet is on another machine and only reachable there.
            FleetLost: its gateways are gone.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        self.provisioner.check_host(fleet)
        preflight.require_usable(job)
        preflight.require_ends_apart(job)
        self.check_move(job)
        # The plan has looked up what the job may have left open.
        job = replace(
            job,
            source=job.source.at(job.source.region or fleet.plan.src),
            destination=job.destination.at(job.destination.region or fleet.plan.dst),
        )
        with timed("transfer: submit"), self._steering(fleet) as steering:
            return steering.submit(
                transfer_key or self.transfer_key(job),
                job,
                self._credentials,
                least_epoch=least_epoch,
            )

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
        unless it was torn down meanwhile. See "When gateways die" in
        docs/explanation/architecture.md.
        One that has cost the policy's `max_job_usd` is stopped, and can be gone on with.

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
            with timed("transfer: moving the objects"):
                status = watch.run()
            with timed("transfer: conclusion"):
                result = conclude(job, watch, status, self._credentials, manifest=manifest)
            result = watch.spending.entered_in(result)
            result = with_handle(result, job, watch, status, self._now())
        return require_success(result, status)

    @property
    def _hands(self) -> Hands:
        return Hands(
            open=self._steering,
            ensure=lambda fleet: self._ensure(
                fleet.key, fleet.plan, fleet.generation, fleet.deployment, must_exist=True
            ),
            pause=Pauses(self._poll_s, self._sleep),
            credentials=self._credentials,
        )

    @contextmanager
    def _steering(self, fleet: Fleet) -> Iterator[Steering]:
        with FleetSessions(fleet, self.authority(fleet.key), name=self._session) as sessions:
            yield Steering(sessions)

    def transfer(
        self,
        job: TransferJob,
        fleet: Fleet,
        *,
        on_submitted: OnSubmitted | None = None,
        on_status: OnStatus | None = None,
        manifest: str | None = None,
        transfer_key: str | None = None,
        least_epoch: int = 1,
    ) -> TransferResult:
        """Run a job on a fleet to its end; a fleet that is gone is built once more.

        Args:
            transfer_key, least_epoch: see `submit`.
            on_submitted: told what to cancel, and on which fleet, should it come to that;
                again whenever that changes.

        Raises:
            TransferFailed: some object is not at the destination; carries the result.
            SkyplaneError: it could not start.
        """
        preflight.require_usable(job, manifest)
        submit = partial(self.submit, job, transfer_key=transfer_key, least_epoch=least_epoch)
        try:
            submitted = submit(fleet)
        except FleetLost as error:
            log.warning("%s; building the fleet once more", error)
            if isinstance(error.__cause__, GatewayDraining):
                self._await_end_of(fleet)
            fleet = self._ensure(fleet.key, fleet.plan, fleet.generation, fleet.deployment)
            submitted = submit(fleet)
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

    def _await_end_of(self, fleet: Fleet) -> None:
        """Wait, within a bound, until somebody has taken a fleet down: what is built before
        that would go down with it."""
        before = self.provisioner.find(fleet.key)
        for _ in range(_LOOKS_FOR_OTHERS):
            if self.provisioner.find(fleet.key) != before or not before:
                return
            self._sleep(_LOOK_S)

    def cancel(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        """Stop a transfer and abort what it has begun. Idempotent."""
        with self._steering(fleet) as steering:
            steering.cancel(submitted)

    def unchanged(self, job: TransferJob) -> TransferResult | None:
        """The success of a job that has nothing to do, which needs no gateways; else None.

        Both ends are listed from here, up to a number of keys. None as well where they cannot
        be, and where an earlier try of the same transfer has left a journal or a fleet.
        """
        if self.provisioner.find(self.identity.fleet_key()):
            return None
        from skyplane_orchestration.transfer.up_to_date import result_if_unchanged

        return result_if_unchanged(job, self.transfer_key(job), self._credentials)

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

        Without a plan or a manifest to write, a job that has nothing to do is done without
        a fleet: see `unchanged`. A fleet is taken down whatever happens, an interruption
        included.

        Raises:
            TransferFailed: as `transfer`. TeardownIncomplete: as `teardown`, unless the
            transfer's own error is on its way.
        """
        preflight.require_usable(job, manifest)
        if plan is None:
            done = None if manifest else self.unchanged(job)
            if done is not None:
                return done
            plan = self.plan(job)
        fleet = self.provision(plan)
        with self._taken_down(fleet, job) as where:
            if on_fleet is not None:
                on_fleet(fleet)
            return self.transfer(job, fleet, manifest=manifest, **where.listeners(on_status))

    def resume(
        self,
        handle: str | ResumeHandle,
        *,
        on_fleet: Callable[[Fleet], None] | None = None,
        on_status: OnStatus | None = None,
        manifest: str | None = None,
        max_job_usd: float | None = None,
    ) -> TransferResult:
        """Go on with a transfer that failed, by the handle of its result.

        It runs under its own keys, in a newer epoch, on its own fleet: one that is still
        up stays up, one that is brought up for it is taken down. The same happens when a
        task runs again under the identity of its run.

        Args:
            max_job_usd: what it may cost from now on; as much as at first when None.

        Raises:
            ConfigurationInvalid: the handle is none, or too old.
            TransferFailed, TeardownIncomplete: as `run`.
        """
        from skyplane_orchestration.model.resume_handle import ResumeHandle

        found = ResumeHandle.from_text(handle) if isinstance(handle, str) else handle
        found.require_live(self._now())
        if max_job_usd is not None:
            found = found.with_budget(max_job_usd)
        preflight.require_usable(found.job, manifest)
        was_up = bool(self.provisioner.find(found.fleet_key))
        fleet = self._ensure(found.fleet_key, found.plan, found.generation, found.deployment)
        taken_down = self._taken_down(fleet, found.job)
        with nullcontext(Whereabouts(fleet)) if was_up else taken_down as where:
            if on_fleet is not None:
                on_fleet(fleet)
            return self.transfer(
                found.job,
                fleet,
                manifest=manifest,
                transfer_key=found.transfer_key,
                least_epoch=found.epoch + 1,
                **where.listeners(on_status),
            )

    @contextmanager
    def _taken_down(self, fleet: Fleet, job: TransferJob) -> Iterator[Whereabouts]:
        """A fleet that goes down whatever happens inside, wherever its gateways are by then.

        After an interruption nobody goes on: what gateways that are gone have left goes too.
        """
        where = Whereabouts(fleet)
        try:
            yield where
        except SkyplaneError:
            if self._is_last(where):
                self.teardown_after_error(where.fleet)
            raise
        except BaseException:
            self.teardown_after_error(where.fleet)
            clear_interrupted(job, where, self._credentials)
            raise
        if self._is_last(where):
            self.teardown(where.fleet)

    def _is_last(self, where: Whereabouts) -> bool:
        """Whether the fleet may go down. One that others use is left to them.

        Other calls of the same transfer have a few seconds to hear of its end.
        """
        if where.submitted is None or not where.has_ended:
            return True
        try:
            with self._steering(where.fleet) as steering:
                for _ in range(_LOOKS_FOR_OTHERS):
                    if not steering.followers(where.submitted):
                        break
                    self._sleep(_LOOK_S)
                is_last = steering.retire()
        except BaseException:
            self.teardown_after_error(where.fleet)
            raise
        if not is_last:
            log.warning("fleet %s stays up: another call uses it, and ends it", where.fleet.key)
        return is_last

    def teardown_after_error(self, fleet: Fleet) -> None:
        """Take down without hiding the error that is on its way."""
        try:
            report = self.teardown(fleet)
        except SkyplaneError as error:
            log.error("teardown of fleet %s failed as well: %s", fleet.key, error)
            return
        for node, tail in report.log_tails.items():
            log.info("end of the log of %s:\n%s", node, tail)
