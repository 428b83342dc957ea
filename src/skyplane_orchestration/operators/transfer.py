"""`SkyplaneTransferOperator`: copies the objects, on a fleet or all in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.lineage.facts import transfer_facts
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.operators.job import SkyplaneJobOperator
from skyplane_orchestration.transfer.progress_log import ProgressLog, heading
from skyplane_orchestration.transfer.task_log import log_result, log_submitted

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.provision.in_process import GatewayPlace
    from skyplane_orchestration.transfer.control import SubmittedTransfer


class SkyplaneTransferOperator(SkyplaneJobOperator):
    """Runs a job on a fleet, or plans, provisions, transfers and tears down in one task.

    A retry joins the running transfer. It resumes a failed transfer from its journal, in a
    new epoch. A transfer that succeeded after its task was killed does not run again.

    The form with one task is for local fleets whose tasks would run on different workers, and
    for small jobs, which it copies inside its own process. If both listings show that there is
    nothing to do, it starts no gateways.
    The task fails if an object failed, unless `allow_failed` is set.

    If the fleet has no gateways, since there was nothing to copy, the task looks again. If there
    is work by then, it starts gateways and ends them.

    Args:
        fleet: `.output` of `SkyplaneProvisionOperator`; None for one task.
        manifest: path or URL for the list of all objects (Parquet).
        gateways: where one task runs its gateways. `auto`: inside its own process for up to
            64 MB, or 4 GB in one region; `always`: as processes; `never`: always inside. A
            worker that is killed ends the gateways inside it, and a retry resumes the transfer.
        cancel_on_kill: a killed task cancels its transfer. With False the transfer
            continues and a retry joins it, for workers that are often replaced.
        outlets: assets; their events get the facts of `lineage.transfer_facts`.

    Returns the result, `TransferResult.to_dict()`: counts, bytes, seconds, planned cost, and
    rates planned and achieved. After a failure the result is in XCom under
    `failed_transfer`, with a resume handle if a resume can help.
    """

    template_fields: Sequence[str] = (*SkyplaneJobOperator.template_fields, "fleet", "manifest")
    template_fields_renderers = {"job": "json", "fleet": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        fleet: Mapping[str, Any] | XComArg | None = None,
        manifest: str | None = None,
        gateways: GatewayPlace = "auto",
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fleet: Any = fleet  # A document, once rendered.
        self.manifest = manifest
        self.gateways = gateways
        self.cancel_on_kill = cancel_on_kill
        self._is_one_task = fleet is None
        self._running: tuple[Client, Fleet, SubmittedTransfer] | None = None

    def client(self, context: Context) -> Client:
        if not self._is_one_task:
            return super().client(context)
        if self.gateways not in ("auto", "always", "never"):
            raise ConfigurationInvalid(
                f"gateways is {self.gateways!r}; use 'auto', 'always' or 'never'"
            )
        name = self.fleet_name or self.default_fleet_name
        return self.hook.client(context, name, self.gateways)

    @property
    def default_fleet_name(self) -> str:
        # Two one-task transfers of a run must not share a fleet.
        return self.task_id if self._is_one_task else super().default_fleet_name

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        job = self.transfer_job()
        self.log.info("%s", heading(job))
        do = self._run_in_one_task if self._is_one_task else self._transfer_on_fleet
        fleet, result = do(client, job)
        facts = transfer_facts(job, fleet.plan if fleet else None, result)
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = facts
        log_result(self.log, result)
        return result.to_dict()

    def _run_in_one_task(
        self, client: Client, job: TransferJob
    ) -> tuple[Fleet | None, TransferResult]:
        fleets: list[Fleet] = []
        listing = client.source_listing()
        client.check_deletes(job, listing=listing)
        result = client.run(
            job,
            listing=listing,
            on_fleet=fleets.append,
            on_status=ProgressLog(self.log.info),
            manifest=self.manifest,
        )
        return fleets[0] if fleets else None, result

    def _transfer_on_fleet(
        self, client: Client, job: TransferJob
    ) -> tuple[Fleet | None, TransferResult]:
        if not self.fleet:
            raise ConfigurationInvalid("the provision task left no fleet; run it again")
        # The client may replace the fleet during the transfer.
        fleets = [Fleet.from_dict(self.fleet)]

        def on_submitted(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            fleets.append(fleet)
            self._running = (client, fleet, submitted)
            log_submitted(self.log, submitted)

        try:
            result = client.transfer(
                job,
                fleets[0],
                on_submitted=on_submitted,
                on_status=ProgressLog(self.log.info),
                manifest=self.manifest,
            )
        finally:
            self._running = None
        return fleets[-1], result

    def cancel_work(self) -> None:
        if self._running is None or not self.cancel_on_kill:
            return
        client, fleet, submitted = self._running
        try:
            client.cancel(fleet, submitted)
        except SkyplaneError as error:
            self.log.warning("transfer %s may go on: %s", submitted.transfer_key, error)
