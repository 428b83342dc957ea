"""`SkyplaneTransferOperator`: moves the objects, on a fleet or all in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.formatting import counted, duration, size, throughput, usd
from skyplane_orchestration.lineage.facts import transfer_facts
from skyplane_orchestration.model.fleet import Fleet, where_gateways_run
from skyplane_orchestration.operators.job import SkyplaneJobOperator
from skyplane_orchestration.transfer.progress_log import ProgressLog, heading

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.transfer.control import SubmittedTransfer


class SkyplaneTransferOperator(SkyplaneJobOperator):
    """Runs a job on a fleet; a retry joins the transfer that runs already.

    One that has failed is gone on with, by its journal, in a newer epoch; one that succeeded
    after its task had been killed is not run again.

    Without a fleet the one task plans, provisions, moves and tears down: for local fleets
    whose tasks would run on different workers, and for jobs that need no tasks of their own.
    It brings up no gateways when both listings show that there is nothing to do.
    The task fails when an object failed, unless `allow_failed` says otherwise.

    Args:
        fleet: what `SkyplaneProvisionOperator` returned (its `.output`); None for one task.
        manifest: path or URL where the list of all objects is written (Parquet).
        cancel_on_kill: a task that is told to end cancels its transfer. With False the
            fleet goes on, and a retry joins it: for workers that come and go.
        outlets: assets; each one's event gets the facts of `lineage.transfer_facts`.

    Returns the result, `TransferResult.to_dict()`: counts, bytes, seconds, planned cost,
    planned against achieved. When objects failed it is left in XCom under `failed_transfer`, with a
    resume handle where going on can help.
    """

    template_fields: Sequence[str] = (*SkyplaneJobOperator.template_fields, "fleet", "manifest")
    template_fields_renderers = {"job": "json", "fleet": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        fleet: Mapping[str, Any] | XComArg | None = None,
        manifest: str | None = None,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fleet: Any = fleet  # A document, once rendered.
        self.manifest = manifest
        self.cancel_on_kill = cancel_on_kill
        self._is_one_task = fleet is None
        self._running: tuple[Client, Fleet, SubmittedTransfer] | None = None

    @property
    def default_fleet_name(self) -> str:
        # Two tasks that each bring up their own gateways must not find each other's.
        return self.task_id if self._is_one_task else super().default_fleet_name

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        job = self.transfer_job()
        self.log.info("%s", heading(job))
        fleet, result = self._run(client, job) if self._is_one_task else self._move(client, job)
        facts = transfer_facts(job, fleet.plan if fleet else None, result)
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = facts
        self._log_result(result)
        return result.to_dict()

    def _run(self, client: Client, job: TransferJob) -> tuple[Fleet | None, TransferResult]:
        fleets: list[Fleet] = []
        client.check_move(job)
        result = client.run(
            job,
            on_fleet=fleets.append,
            on_status=ProgressLog(self.log.info),
            manifest=self.manifest,
        )
        return fleets[0] if fleets else None, result

    def _move(self, client: Client, job: TransferJob) -> tuple[Fleet, TransferResult]:
        if not self.fleet:
            raise ConfigurationInvalid("the provision task left no fleet; run it again")
        fleet = Fleet.from_dict(self.fleet)

        def keep(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            self._running = (client, fleet, submitted)
            verb = "joined" if submitted.joined else "submitted"
            self.log.info("%s transfer %s at %s", verb, submitted.transfer_key, submitted.lead)

        try:
            result = client.transfer(
                job,
                fleet,
                on_submitted=keep,
                on_status=ProgressLog(self.log.info),
                manifest=self.manifest,
            )
        finally:
            self._running = None
        return fleet, result

    def cancel_work(self) -> None:
        if self._running is None or not self.cancel_on_kill:
            return
        client, fleet, submitted = self._running
        try:
            client.cancel(fleet, submitted)
        except SkyplaneError as error:
            self.log.warning("transfer %s may go on: %s", submitted.transfer_key, error)

    def _log_result(self, result: TransferResult) -> None:
        if not result.used_gateways:
            self.log.info("nothing to do; unchanged: %s", counted(result.objects, "object"))
            return
        self.log.info(
            "%s copied (%s%s), %d skipped, %d failed; %s, %s (planned %s), planned cost %s; %s",
            counted(result.copied, "object"),
            size(result.copied_bytes),
            f", {result.copied_earlier} copied earlier" if result.copied_earlier else "",
            result.skipped,
            result.failed,
            duration(result.seconds),
            throughput(result.goodput_gbps),
            throughput(result.planned_gbps),
            usd(result.cost.total_usd),
            where_gateways_run(result.gateways),
        )
        own = result.this_try
        if own.seconds < result.seconds:
            self.log.info(
                "this try: %s (%s) in %s, planned cost %s",
                counted(own.copied, "object"),
                size(own.copied_bytes),
                duration(own.seconds),
                usd(own.cost.total_usd),
            )
        if result.moved:
            self.log.info("%s deleted at the source", counted(result.moved, "object"))
        for warning in result.warnings:
            self.log.warning("%s", warning)
