"""One run of a job on a fleet: check, submit, monitor, finalize, tear down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module

from skyplane_orchestration.errors import FleetLost, GatewayDraining, SkyplaneError, TransferFailed
from skyplane_orchestration.model.fleet import IN_PROCESS, Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.provision.parallel import in_background
from skyplane_orchestration.recovery.destination_cleanup import remove_journals
from skyplane_orchestration.storage.preflight import (
    require_ends_apart,
    require_usable,
    with_planned_regions,
)
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.finalize import finalize, require_success
from skyplane_orchestration.transfer.first_requests import FirstRequests
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.learning import record_sent, with_rates
from skyplane_orchestration.transfer.manifest_record import signing_key
from skyplane_orchestration.transfer.path_conflicts import InTheWay, put_back, set_aside
from skyplane_orchestration.transfer.run_options import RunOptions
from skyplane_orchestration.transfer.transfer_monitor import Monitor

log = logging.getLogger(__name__)


class TransferRun:
    """Runs one job on a fleet.

    Args:
        listing: what the run has listed of the source.
        in_the_way: checks the deletes of the job; what is in the way of its copies.
        asked: what the run has asked both stores before.

    Attributes:
        fleet: the fleet that was used last.
        submitted: the transfer on it; None before the submit.
        has_ended: the lead has reported the end.
    """

    def __init__(
        self,
        request: TransferRequest,
        fleet: Fleet,
        context: ClientContext,
        options: RunOptions,
        listing: SourceListing,
        in_the_way: Callable[[TransferJob], InTheWay],
        asked: FirstRequests | None = None,
    ) -> None:
        self.fleet = fleet
        self.submitted: SubmittedTransfer | None = None
        self.has_ended = False
        # The plan has the regions that the job leaves open.
        job, plan = request.job, fleet.plan
        located = with_planned_regions(job, plan, request.credentials)
        self._request = replace(request, job=located)
        self._context = context
        self._fleets = context.fleets
        self._options = options
        self._listing = listing
        self._in_the_way = in_the_way
        self._asked = asked if fleet.provisioner == IN_PROCESS else None
        self._budget: Budget | None = None

    def run(self, *, least_epoch: int = 1) -> TransferResult:
        """Submit the job and follow it to its end; see `Client.transfer`."""
        return self.wait(self.begin(least_epoch=least_epoch))

    def begin(self, *, least_epoch: int = 1) -> SubmittedTransfer:
        """Submit the job; a fleet that is gone is built once more."""
        require_usable(self._request.job, self._options.manifest)
        signing_key(self._context)
        try:
            submitted = self.submit(least_epoch=least_epoch)
        except FleetLost as error:
            log.warning("%s; building the fleet once more", error)
            if isinstance(error.__cause__, GatewayDraining):
                self._fleets.await_teardown(self.fleet)
            self.fleet = self._fleets.rebuild(self.fleet)
            submitted = self.submit(least_epoch=least_epoch)
        self._was_submitted(self.fleet, submitted)
        return submitted

    def run_and_tear_down(
        self, *, least_epoch: int = 1, keeps_fleet: bool = False
    ) -> TransferResult:
        """As `run`, and take the fleet down at the end unless it is kept."""

        def run() -> TransferResult:
            if self._options.on_fleet is not None:
                self._options.on_fleet(self.fleet)
            return self.run(least_epoch=least_epoch)

        return self._and_tear_down(run, keeps_fleet=keeps_fleet)

    def _and_tear_down(
        self, run: Callable[[], TransferResult], *, keeps_fleet: bool = False
    ) -> TransferResult:
        try:
            with nullcontext() if keeps_fleet else self._teardown_afterwards():
                result = run()
        except TransferFailed as error:
            if isinstance(error.result, TransferResult):
                error.result = self._with_teardown(error.result)
            raise
        return self._with_teardown(result)

    def _with_teardown(self, result: TransferResult) -> TransferResult:
        """The result of a run whose fleet has ended: instances cost until then."""
        return result if self._budget is None else self._budget.after_teardown(result)

    def begin_or_tear_down(self) -> SubmittedTransfer:
        """As `begin`, and take the fleet down after an error."""
        try:
            return self.begin()
        except BaseException:
            self._fleets.teardown_after_error(self.fleet)
            raise

    def wait_and_tear_down(self, submitted: SubmittedTransfer) -> TransferResult:
        """As `wait`, and take the fleet down at the end."""
        self.submitted = submitted
        return self._and_tear_down(lambda: self.wait(submitted))

    def submit(self, *, least_epoch: int = 1) -> SubmittedTransfer:
        """Check the job and submit it; see `Client.submit`."""
        self._fleets.provisioner.check_host(self.fleet)
        job = self._request.job
        require_usable(job)
        require_ends_apart(job)
        set_aside(job, self._request.transfer_key, self._in_the_way(job))
        try:
            with timed("transfer: submit"), self._fleets.control(self.fleet) as control:
                listed = self._listing.hand_over(job)
                # Both are of the same age.
                asked = None if listed is None else self._asked
                return control.submit(
                    self._request, least_epoch=least_epoch, listed=listed, asked=asked
                )
        except BaseException:
            self._put_back()
            raise

    def wait(self, submitted: SubmittedTransfer) -> TransferResult:
        """Follow a submitted transfer to its end; see `Client.finish`."""
        if self._request.job.keeps_manifest:  # Its commit loads pyarrow, which takes 0.2 s.
            in_background(lambda: import_module("skyplane_orchestration.storage.manifest.commit"))
        with Monitor(
            self._request,
            self.fleet,
            submitted,
            self._context,
            on_status=self._was_polled,
            on_submitted=self._was_submitted,
        ) as monitor:
            self._budget = monitor.budget
            with timed("transfer: moving the objects"):
                status = monitor.run()
            with timed("transfer: conclusion"):
                record_sent(monitor)
                result = with_rates(monitor, finalize(monitor, status, self._options.manifest))
        return require_success(result, status)

    def _was_submitted(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        self.fleet, self.submitted = fleet, submitted
        if self._options.on_submitted is not None:
            self._options.on_submitted(fleet, submitted)

    def _was_polled(self, status: TransferStatus) -> None:
        self.has_ended = not status.is_running
        if self._options.on_status is not None:
            self._options.on_status(status)

    @contextmanager
    def _teardown_afterwards(self) -> Iterator[None]:
        """Tear the fleet down at the end of the block, also after an error.

        An interrupted transfer is never resumed, so its journals and uploads are removed as well.
        """
        try:
            yield
        except SkyplaneError:
            if self._is_unused():
                self._tear_down(self._fleets.teardown_after_error)
                self._put_back()
            raise
        except BaseException:
            self._fleets.teardown_after_error(self.fleet)
            self._put_back()
            self._remove_interrupted()
            raise
        if self._is_unused():
            self._tear_down(self._fleets.teardown)

    def _tear_down(self, teardown: Callable[[Fleet], object]) -> None:
        """Tear the fleet down. An interruption is raised when that is done."""
        try:
            teardown(self.fleet)
        except SkyplaneError:
            raise
        except BaseException:
            log.warning("interrupted; finishing the teardown of fleet %s", self.fleet.key)
            self._fleets.teardown_after_error(self.fleet)
            raise

    def _is_unused(self) -> bool:
        """Whether the fleet may be torn down; another call may use it."""
        if self.submitted is None or not self.has_ended:
            return True
        try:
            is_unused = self._fleets.is_unused(self.fleet, self.submitted)
        except BaseException:
            self._fleets.teardown_after_error(self.fleet)
            raise
        if not is_unused:
            log.warning("fleet %s stays up: another call uses it, and ends it", self.fleet.key)
        return is_unused

    def _put_back(self) -> None:
        """Put back what was set aside, unless `finalize` has done so."""
        if self.has_ended:
            return
        for warning in put_back(self._request.job, self._request.transfer_key):
            log.warning("%s", warning)

    def _remove_interrupted(self) -> None:
        """Remove journals and uploads, unless the transfer had ended: its next run needs those."""
        if self.submitted is None or self.has_ended:
            return
        for warning in remove_journals(
            self._request.job,
            self._request.transfer_key,
            self.submitted.epoch,
            self._request.credentials,
        ):
            log.warning("%s", warning)
