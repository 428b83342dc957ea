"""`SkyplaneTransferOperator`: copies the objects, on a fleet or all in one task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    DestinationsFailed,
    SkyplaneError,
    Stopped,
    TransferFailed,
)
from skyplane_orchestration.lineage.facts import ends_facts, facts_of_all, transfer_facts
from skyplane_orchestration.links.skyplane import SkyplaneLineageLink, SkyplaneTransferLink
from skyplane_orchestration.model.fleet import Fleet, GatewayPlace
from skyplane_orchestration.model.location import require_different
from skyplane_orchestration.model.output_format import require_manifest
from skyplane_orchestration.operators.arguments import Document, Flag
from skyplane_orchestration.operators.fleet_job import SkyplaneFleetOperator
from skyplane_orchestration.operators.sweep import Destination, location_of
from skyplane_orchestration.report.task_documents import FAILED_TRANSFER, LINEAGE
from skyplane_orchestration.transfer.progress_log import heading
from skyplane_orchestration.transfer.task_log import RunLog, log_failures, log_result
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.openlineage.extractors import OperatorLineage

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.model.status import TransferStatus
    from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer
    from skyplane_orchestration.transfer.run_options import RunArguments


class SkyplaneTransferOperator(SkyplaneFleetOperator):
    """Runs a job on a fleet, or plans, provisions, transfers and tears down in one task.

    A retry joins the running transfer. It resumes a failed transfer from its journal, in a
    new epoch. A transfer that succeeded after its task was killed does not run again.

    The form with one task is for local fleets whose tasks would run on different workers, and
    for small jobs, which it copies inside its own process. If both listings show that there is
    nothing to do, it starts no gateways.
    The task fails if an object failed, unless `allow_failed` is set.

    If the deployment has `max_active_fleets` other fleets, one task waits until one has ended.

    If the fleet has no gateways, since there was nothing to copy, the task looks again. If there
    is work by then, it starts gateways and ends them.

    Args:
        fleet: `.output` of `SkyplaneProvisionOperator`; None for one task.
        destinations: URLs, in place of `destination_url`, whose stores know their regions; or
            locations, or their `to_dict()`, such as `{"url": ..., "region": ...}`.
        manifest: path or URL for the list of all objects, in the format of its suffix.
        gateways: where one task runs its gateways. `auto`: inside its own process for up to
            64 MB, or 4 GB in one region; `always`: as processes; `never`: always inside. A
            worker that is killed ends the gateways inside it, and a retry resumes the transfer.
        cancel_on_kill: a killed task cancels its transfer. With False the transfer
            continues and a retry joins it, for workers that are often replaced.
        deferrable: submit the transfer, free the slot of the worker, and let
            `SkyplaneTransferTrigger` wait in the triggerer. Default: `default_deferrable` of
            Airflow's section `operators`. What the task copies itself, it copies before it frees
            the slot. `execution_timeout` stops the transfer, and a retry continues it.
        defer_after_s: how long a deferrable task first follows its transfer in the slot, in
            seconds. Most small copies end in this time.
        poll_interval_s: pause between two polls of the trigger; shorter than `lease_s` of the
            connection.
        outlets: assets; their events get the facts of `lineage.transfer_facts`.

    With `destinations` it copies to several places, in one task: what those in different regions
    share of the way is sent once. Each has its own result, and one that fails does not stop the
    others. The task is not deferrable then, and returns the URL of each destination with its
    result; if there are as many outlets as destinations, each outlet gets the facts of its own.

    Returns the result, `TransferResult.to_dict()`: counts, bytes, seconds, planned cost, and
    rates planned and achieved. After a failure the result is in XCom under
    `failed_transfer`, with a resume handle if a resume can help. The facts of the lineage are in
    XCom under `lineage`, also after a failure.
    """

    template_fields_renderers = {"job": "json", "fleet": "json"}  # noqa: RUF012 - Airflow's
    operator_extra_links = (SkyplaneTransferLink(), SkyplaneLineageLink())
    fleet: Mapping[str, Any] | None
    destinations: Sequence[Destination] | None
    manifest: str | None
    gateways: GatewayPlace
    cancel_on_kill: bool
    defer_after_s: float
    poll_interval_s: float

    def __init__(
        self,
        *,
        fleet: Document | None = None,
        destinations: Sequence[Destination] | None = None,
        manifest: str | None = None,
        gateways: GatewayPlace = "auto",
        cancel_on_kill: Flag = True,
        defer_after_s: float | str = 15.0,
        poll_interval_s: float | str = 5.0,
        **kwargs: Any,
    ) -> None:
        if destinations is not None:
            kwargs["destination_url"] = _first(
                destinations, fleet=fleet, manifest=manifest, **kwargs
            )
        super().__init__(**kwargs)
        _check_values(self.keep(locals()))
        self._is_one_task = fleet is None
        self._running: tuple[Client, Fleet, SubmittedTransfer] | None = None
        self._seen: tuple[Fleet, TransferStatus] | None = None
        self._facts: dict[str, Any] | None = None
        self._fleets: Sequence[Fleet] = ()
        self._error = ""

    def arguments(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        found = super().arguments(names)
        _check_values(found)
        return found

    def client(self, context: Context) -> Client:
        if not self._is_one_task:
            return super().client(context)
        name = self.fleet_name or self.default_fleet_name
        return self.hook.client(context, name, self.gateways)

    @property
    def default_fleet_name(self) -> str:
        # Two one-task transfers of a run must not share a fleet.
        return self.task_id if self._is_one_task else super().default_fleet_name

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        jobs = [self.hook.placed_job(job) for job in self._jobs()]
        for job in jobs:
            self.log.info("%s", heading(job))
        if self.destinations:
            return self._to_all(context, client, jobs)
        if not (self.fleet or self._is_one_task):
            raise ConfigurationInvalid("the provision task left no fleet; run it again")
        fleet = Fleet.from_dict(self.fleet) if self.fleet else None
        fleets = [] if fleet is None else [fleet]
        # The client itself ends a transfer on a fleet of its own.
        arguments = self._run_arguments(context, client, fleets, cancels=fleet is not None)
        try:
            if self.deferrable:
                done = client.job_run(job).begin(fleet, **arguments)
            elif fleet is None:
                done = client.run(job, **arguments)
            else:
                done = client.transfer(job, fleet, **arguments)
        finally:
            self._running = None
        if isinstance(done, WatchedTransfer):
            watched = replace(done, deadline_unix_s=self.deadline_unix_s(context))
            return self._follow(context, client, watched)
        return self._conclude(context, job, fleets[-1] if fleets else None, done)

    def _jobs(self) -> list[TransferJob]:
        """A job for each destination; credentials that it does not name are those of the first."""
        job = self.transfer_job()
        to = job.destination
        places = (location_of(each, to.endpoint_url) for each in self.destinations or [to])
        own = [replace(at, credential_ref=at.credential_ref or to.credential_ref) for at in places]
        return [replace(job, destination=place) for place in own]

    def _to_all(self, context: Context, client: Client, jobs: list[TransferJob]) -> dict[str, Any]:
        """Copy to all destinations; URL -> result."""
        run = RunLog(self.log, [])
        arguments = run.arguments(None)
        del arguments["on_status"]
        arguments["on_full"] = self.on_full(context)
        try:
            further = [job.destination for job in jobs[1:]]
            results = client.run_to_all(jobs[0], further, **arguments)
        except DestinationsFailed as error:
            found = {url: {"error": one.to_dict()} for url, one in error.errors.items()}
            found |= self._conclude_all(context, jobs, run.plans, error.results)
            self.push(context, FAILED_TRANSFER, found)
            raise
        return self._conclude_all(context, jobs, run.plans, results)

    def _conclude_all(
        self,
        context: Context,
        jobs: Sequence[TransferJob],
        plans: Mapping[str, TransferPlan],
        results: Mapping[str, TransferResult],
    ) -> dict[str, Any]:
        """Report each transfer with the plan that it was submitted to, and all of them together."""
        facts: dict[str, dict[str, Any]] = {}
        for job in jobs:
            result = results.get(url := job.destination.url)
            if result is None:
                facts[url] = {**ends_facts(job), "state": "failed", "copied": 0, "bytes": 0}
                continue
            facts[url] = transfer_facts(job, plans.get(result.transfer_key), result)
            self.log.info("%s:", url)
            log_result(self.log, result)
            log_failures(self.log, result)
        if results:
            of_all = self._report(context, *facts.values())
            own, count = list(facts.values()), len(self.outlets)
            each = own if len(own) == count else [of_all] * count
            for outlet, extra in zip(self.outlets, each, strict=True):
                context["outlet_events"][outlet].extra = extra
        return {url: result.to_dict() for url, result in results.items()}

    def _run_arguments(
        self, context: Context, client: Client, fleets: list[Fleet], *, cancels: bool = True
    ) -> RunArguments:
        """How a run tells what it does; `fleets` gets each fleet that it uses.

        Keeps the last status for a task that is cut off, and with `cancels` the transfer, which
        `on_kill` then cancels.
        """
        self._fleets = fleets
        run = RunLog(self.log, fleets)

        def on_status(status: TransferStatus) -> None:
            run.on_status(status)
            if fleets:
                self._seen = (fleets[-1], status)

        def on_submitted(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            run.on_submitted(fleet, submitted)
            if cancels:
                self._running = (client, fleet, submitted)

        return {
            **run.arguments(self.manifest),
            "on_status": on_status,
            "on_submitted": on_submitted,
            "on_full": self.on_full(context),
        }

    def _follow(self, context: Context, client: Client, watched: WatchedTransfer) -> dict[str, Any]:
        """Follow the transfer in the slot for its first seconds; free the slot after them."""
        self._running = (client, watched.fleet, watched.submitted)
        message = ""
        try:
            arguments = self._run_arguments(context, client, [watched.fleet])
            watch = client.watch(watched, on_status=arguments["on_status"])
            end: str | None = watch.follow(self.defer_after_s)
        except SkyplaneError as error:
            end, message = "error", str(error)
        except BaseException:
            if watched.owns_fleet and self.cancel_on_kill:
                client.teardown_after_error(watched.fleet)
            raise
        finally:
            self._running = None
        if end is None:
            self._defer(client, watched)
        return self._wake(context, client, watched, {"end": end, "message": message})

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the event of the trigger; returns and raises as `execute`."""

        def work(context: Context, client: Client) -> dict[str, Any]:
            watched = WatchedTransfer.from_dict(event["watched"])
            watch = client.watch(watched)
            is_silent = event["end"] == "silent" and event["has_answered"]
            if is_silent and watch.poll() is None and watch.has_answered:
                self._defer(client, watched)
            return self._wake(context, client, watched, event)

        return self._run(context, work)

    def _wake(
        self, context: Context, client: Client, watched: WatchedTransfer, event: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Take the transfer to its end after a watch."""
        if event["message"]:
            self.log.warning("the transfer could not be watched: %s", event["message"])
        fleets = [watched.fleet]
        arguments = self._run_arguments(context, client, fleets)
        self._running = (client, watched.fleet, watched.submitted)
        try:
            result = client.finish(watched, **arguments)
        finally:
            self._running = None
        return self._conclude(context, watched.job, fleets[-1], result)

    def _conclude(
        self, context: Context, job: TransferJob, fleet: Fleet | None, result: TransferResult
    ) -> dict[str, Any]:
        facts = transfer_facts(job, fleet.plan if fleet else None, result)
        self._report(context, facts)
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = facts
        log_result(self.log, result)
        return result.to_dict()

    def _defer(self, client: Client, watched: WatchedTransfer) -> NoReturn:
        """Free the slot until the trigger's event. Raises TaskDeferred."""
        from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger

        trigger = SkyplaneTransferTrigger.of(
            client,
            watched,
            self.skyplane_conn_id,
            poll_interval_s=self.poll_interval_s,
            cancel_on_kill=self.cancel_on_kill,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def report_timeout(self, context: Context) -> None:
        if self._seen is None:
            return
        from skyplane_orchestration.hooks.time_limit import timeout_reason
        from skyplane_orchestration.transfer.results import result_of

        fleet, status = self._seen
        if status.is_running:
            error = Stopped(timeout_reason(self.execution_timeout))
            status = replace(status, state="failed", error=error.to_dict())
        result = result_of(self.hook.placed_job(self.transfer_job()), fleet, status)
        self.report_failure(context, TransferFailed(result.error, result=result))

    def report_failure(self, context: Context, error: SkyplaneError) -> TransferResult | None:
        result = super().report_failure(context, error)
        self._error = f"{error.code}: {error}"
        if result is not None:
            plan = self._fleets[-1].plan if self._fleets else None
            self._report(context, transfer_facts(self.transfer_job(), plan, result))
        return result

    def _report(self, context: Context, *facts: dict[str, Any]) -> dict[str, Any]:
        """Emit metrics of each region; the facts of all, kept for OpenLineage and the page."""
        with_result = [one for one in facts if "this_try" in one]
        for region in dict.fromkeys(_region(one["outputs"]) for one in with_result):
            own = [one for one in with_result if _region(one["outputs"]) == region]
            emit_metrics(facts_of_all(own), self.dag_id, self.task_id)
        self._facts = facts[0] if len(facts) == 1 else facts_of_all(facts)
        self.push(context, LINEAGE, self._facts)
        return self._facts

    # -- OpenLineage: the provider calls these; it logs what they raise.

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Both ends, by their OpenLineage names."""
        return self._lineage(self._ends())

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage[Any, Any]:
        """Both ends, what was copied, and the plan beside the outcome."""
        return self._lineage(self._facts or self._ends())

    def get_openlineage_facets_on_failure(self, _: object) -> OperatorLineage[Any, Any]:
        """As on complete, with what was copied before the failure, and the error."""
        return self._lineage(self._facts or self._ends(), self._error)

    def _ends(self) -> dict[str, Any]:
        """Both ends, with an output for each destination."""
        ends = [ends_facts(job) for job in self._jobs()]
        return {**ends[0], "outputs": [row for one in ends for row in one["outputs"]]}

    def _lineage(self, facts: Mapping[str, Any], error: str = "") -> OperatorLineage[Any, Any]:
        from airflow.providers.openlineage.extractors import OperatorLineage

        from skyplane_orchestration.lineage.openlineage import lineage_of

        return OperatorLineage(**vars(lineage_of(facts, error)))

    def cancel_work(self) -> None:
        if self._running is None or not self.cancel_on_kill:
            return
        client, fleet, submitted = self._running
        try:
            client.cancel(fleet, submitted)
        except SkyplaneError as error:
            self.log.warning("transfer %s may go on: %s", submitted.transfer_key, error)


def _first(destinations: object, **given: Any) -> str:
    """The URL of the first destination. Raises ConfigurationInvalid."""
    if not destinations or not isinstance(destinations, Sequence) or isinstance(destinations, str):
        raise ConfigurationInvalid(f"destinations is a list of URLs, not {destinations!r}")
    of_one = "fleet", "job", "destination_url", "destination_region", "manifest", "deferrable"
    for name in of_one:
        if given.get(name):
            raise ConfigurationInvalid(f"destinations go without {name}; omit one of them")
    urls = [
        str(one.get("url", "")) if isinstance(one, Mapping) else getattr(one, "url", str(one))
        for one in destinations
    ]
    require_different(urls)
    return urls[0]


def _check_values(arguments: Mapping[str, Any]) -> None:
    require_manifest(arguments.get("manifest"))
    if (slot_s := arguments.get("defer_after_s", 0.0)) < 0:
        raise ConfigurationInvalid(f"defer_after_s is {slot_s:g}; give 0 or more seconds")
    if (pause_s := arguments.get("poll_interval_s", 1.0)) <= 0:
        raise ConfigurationInvalid(
            f"poll_interval_s is {pause_s:g}; give a positive number of seconds"
        )


PREFIX: Final = "skyplane.transfer"


def emit_metrics(facts: Mapping[str, Any], dag_id: str, task_id: str) -> None:
    """Emit counters, a timer and gauges about a transfer that has ended.

    Counters and the timer are of this try, so that their sums are right after retries. Gauges are
    of the whole transfer.

    Args:
        facts: see `lineage.facts.transfer_facts`.
    """
    # Imported here: a DAG file is parsed often, and emits nothing.
    from airflow.providers.common.compat.sdk import Stats

    own = facts["this_try"]
    tags = {
        "dag_id": dag_id,
        "task_id": task_id,
        "src": _region(facts["inputs"]),
        "dst": _region(facts["outputs"]),
        "state": facts["state"],
    }
    counters = {
        "bytes": own["copied_bytes"],
        "objects": own["copied"],
        "failed_objects": facts["failed"],
    }
    gauges = {
        "goodput_gbps": facts["goodput_gbps"],
        "drift": facts["drift"],
        "cost_usd": facts["planned_cost"]["total_usd"],
        "planned_cost_usd": facts["estimated_usd"],
    }
    for name, count in counters.items():
        Stats.incr(f"{PREFIX}.{name}", count, tags=tags)
    Stats.timing(f"{PREFIX}.seconds", timedelta(seconds=own["seconds"]), tags=tags)
    for name, value in gauges.items():
        if value is not None:
            Stats.gauge(f"{PREFIX}.{name}", value, tags=tags)


def _region(datasets: Sequence[Mapping[str, Any]]) -> str:
    """The region of the first dataset, as the value of a tag."""
    region: str = datasets[0]["region"]
    # A colon ends the name of a StatsD metric, and its tags.
    return region.replace(":", ".") or "unknown"
