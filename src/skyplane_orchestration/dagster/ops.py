"""The steps of a transfer as ops: plan, provision, transfer, teardown, finish.

What passes between them are small documents. Dagster skips what follows a failed op: the
hook of `cleanup` takes the gateways down then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_orchestration.dagster.cleanup import log_teardown, note_fleet
from skyplane_orchestration.dagster.metadata import materialization_metadata, plan_metadata
from skyplane_orchestration.errors import SkyplaneError, TransferFailed
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import Fleet, where_gateways_run
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.transfer.progress_log import ProgressLog, heading

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.transfer.control import SubmittedTransfer

Document = dict[str, Any]

#: In a URL: replaced by the key of the partition that is materialized.
PARTITION_KEY: Final = "{partition_key}"

#: Where Dagster notes the partition of a run.
_PARTITION_TAG: Final = "dagster/partition"

_LOGGED_FAILURES: Final = 20


@dataclass(frozen=True, slots=True)
class TransferSteps:
    """What the steps of one asset have in common.

    Args:
        key: the asset's; with the id of the first run it names the fleet.
        job: what to move; its URLs may hold `PARTITION_KEY`.
        manifest: path or URL for the list of all objects; may hold `PARTITION_KEY`.
        resource_key: of the `SkyplaneResource`.
        retry_policy: of every step; a retry finds the fleet and the transfer of the first try.
    """

    key: dg.AssetKey
    job: TransferJob
    manifest: str | None
    resource_key: str
    retry_policy: dg.RetryPolicy | None

    def op(
        self, step: str, *, ins: Mapping[str, dg.In] | None = None, out: dg.Out | None = None
    ) -> Callable[[Callable[..., Any]], dg.OpDefinition]:
        """The decorator of one step. Names of ops are unique in a code location."""
        decorator: Callable[[Callable[..., Any]], dg.OpDefinition] = dg.op(
            name=self.name_of(step),
            ins=dict(ins or {}),
            out=out or dg.Out(dict),
            required_resource_keys={self.resource_key},
            retry_policy=self.retry_policy,
        )

        def make(body: Callable[..., Any]) -> dg.OpDefinition:
            # Dagster compares the annotation of `context` itself and knows no postponed ones;
            # the types of inputs and outputs it has from `ins` and `out`.
            body.__annotations__ = {"context": dg.OpExecutionContext}
            return decorator(body)

        return make

    def name_of(self, part: str) -> str:
        """Of a step, or of what belongs to the steps."""
        return "__".join([*self.key.path, part]).replace("-", "_")

    def client(self, resources: object, run: dg.DagsterRun) -> Client:
        """Acts for this asset, run and partition: the same for every step and every try."""
        resource = getattr(resources, self.resource_key)
        client: Client = resource.client(self.identity(resource.deployment, run))
        return client

    def client_of(self, context: dg.OpExecutionContext) -> Client:
        return self.client(context.resources, context.run)

    def identity(self, deployment: str, run: dg.DagsterRun) -> RunIdentity:
        """The same for a run and for those that execute it again: they go on with its transfer."""
        return RunIdentity(
            deployment=deployment,
            owner=self.key.to_user_string(),
            run=run.root_run_id or run.run_id,
            group=run.tags.get(_PARTITION_TAG, ""),
        )

    def job_of(self, context: dg.OpExecutionContext) -> TransferJob:
        """The job of the partition."""
        partition = _partition_key(context)
        return replace(
            self.job,
            source=_in_partition(self.job.source, partition),
            destination=_in_partition(self.job.destination, partition),
        )

    def manifest_of(self, context: dg.OpExecutionContext) -> str | None:
        if self.manifest is None:
            return None
        return self.manifest.replace(PARTITION_KEY, _partition_key(context))


def _partition_key(context: dg.OpExecutionContext) -> str:
    return context.partition_key if context.has_partition_key else ""


def _in_partition(location: Location, partition: str) -> Location:
    if PARTITION_KEY not in location.url:
        return location
    return replace(location, url=location.url.replace(PARTITION_KEY, partition))


def failure_of(error: SkyplaneError) -> dg.Failure:
    """The failure of a step, which Dagster retries only where that can help."""
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "skyplane/error": dg.MetadataValue.json(error.to_dict())
    }
    result = _result_of(error)
    if result is not None:
        metadata["skyplane/result"] = dg.MetadataValue.json(result.to_dict())
    return dg.Failure(
        description=f"{error.code}: {error}",
        metadata=metadata,
        allow_retries=not error.is_permanent,
    )


def _result_of(error: SkyplaneError) -> TransferResult | None:
    result = error.result if isinstance(error, TransferFailed) else None
    return result if isinstance(result, TransferResult) else None


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except SkyplaneError as error:
        raise failure_of(error) from error


# ---------------------------------------------------------------- the ops


def plan_op(steps: TransferSteps, deps: Mapping[str, dg.In]) -> dg.OpDefinition:
    @steps.op("plan", ins=deps)
    def plan(context: dg.OpExecutionContext) -> Document:
        with _failures():
            client, job = steps.client_of(context), steps.job_of(context)
            context.log.info(heading(job))
            client.check_destination(job)
            client.check_move(job)
            found = client.plan(job)
        context.add_output_metadata(plan_metadata(found))
        return found.to_dict()

    return plan


def provision_op(steps: TransferSteps) -> dg.OpDefinition:
    @steps.op("provision", ins={"plan": dg.In(dict)})
    def provision(context: dg.OpExecutionContext, plan: Document) -> Document:
        with _failures():
            client = steps.client_of(context)
            note_fleet(context, client)
            # A failure undoes itself before it is raised, an interruption as well.
            fleet = client.provision(TransferPlan.from_dict(plan))
        context.log.info(
            "fleet %s: %s up in %.1f s; %s. The sensor of build_skyplane_cleanup_sensor() "
            "takes them down if this run is terminated; without it they end with their lease",
            fleet.key,
            counted(len(fleet.gateways), "gateway"),
            fleet.provision_s,
            where_gateways_run(fleet.provisioner),
        )
        context.add_output_metadata(
            {
                "skyplane/fleet": dg.MetadataValue.text(fleet.key),
                "skyplane/gateways": dg.MetadataValue.text(where_gateways_run(fleet.provisioner)),
                "skyplane/gateway_count": dg.MetadataValue.int(len(fleet.gateways)),
                "skyplane/provision_s": dg.MetadataValue.float(fleet.provision_s),
            }
        )
        return fleet.to_dict()

    return provision


def transfer_op(steps: TransferSteps) -> dg.OpDefinition:
    @steps.op("transfer", ins={"fleet": dg.In(dict)})
    def transfer(context: dg.OpExecutionContext, fleet: Document) -> Document:
        client, built = steps.client_of(context), Fleet.from_dict(fleet)
        note_fleet(context, client)
        job = steps.job_of(context)
        context.log.info(heading(job))
        # It may be brought up again meanwhile, at other addresses.
        fleets = [built]

        def on_submitted(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            fleets.append(fleet)
            _log_submitted(context, submitted)

        try:
            result = client.transfer(
                job,
                built,
                on_submitted=on_submitted,
                on_status=ProgressLog(context.log.info),
                manifest=steps.manifest_of(context),
            )
        except SkyplaneError as error:
            _log_failed(context, error)
            raise failure_of(error) from error
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt, SystemExit):
            # The run is terminated: no later step and no hook would take it down.
            client.teardown_after_error(fleets[-1])
            raise
        return {"fleet": fleets[-1].to_dict(), "result": result.to_dict()}

    return transfer


def teardown_op(steps: TransferSteps) -> dg.OpDefinition:
    @steps.op("teardown", ins={"outcome": dg.In(dict)})
    def teardown(context: dg.OpExecutionContext, outcome: Document) -> Document:
        with _failures():
            report = steps.client_of(context).teardown(Fleet.from_dict(outcome["fleet"]))
        log_teardown(context.log, report, logging.DEBUG)
        return {"stopped": list(report.stopped)}

    return teardown


def finish_op(steps: TransferSteps) -> dg.OpDefinition:
    ins = {"plan": dg.In(dict), "outcome": dg.In(dict), "torn_down": dg.In(dict)}

    @steps.op("finish", ins=ins, out=dg.Out(dg.Nothing))
    def finish(
        context: dg.OpExecutionContext, plan: Document, outcome: Document, torn_down: Document
    ) -> dg.Output[None]:
        metadata = materialization_metadata(
            steps.job_of(context),
            TransferPlan.from_dict(plan),
            TransferResult.from_dict(outcome["result"]),
        )
        return dg.Output(None, metadata=metadata)

    return finish


def cleanup_hook(steps: TransferSteps) -> dg.HookDefinition:
    """Takes the gateways down when a step fails for good, since Dagster skips what follows.

    By key, which needs no document: what a failed transfer has begun stays to go on by.
    """

    @dg.failure_hook(name=steps.name_of("cleanup"), required_resource_keys={steps.resource_key})
    def cleanup(context: dg.HookContext) -> None:
        run = context.instance.get_run_by_id(context.run_id)
        if run is None:
            context.log.error("run %s is gone; its gateways end with their lease", context.run_id)
            return
        client = steps.client(context.resources, run)
        log_teardown(context.log, client.teardown(client.identity.fleet_key()), logging.WARNING)

    return cleanup


# ---------------------------------------------------------------- what they log


def _log_submitted(context: dg.OpExecutionContext, submitted: SubmittedTransfer) -> None:
    verb = "joined" if submitted.joined else "submitted"
    context.log.info("%s transfer %s at %s", verb, submitted.transfer_key, submitted.lead)


def _log_failed(context: dg.OpExecutionContext, error: SkyplaneError) -> None:
    """Name the objects that failed, and how to go on."""
    result = _result_of(error)
    if result is None:
        return
    for failure in result.failures[:_LOGGED_FAILURES]:
        context.log.error("%s: %s (%s)", failure.source, failure.reason, failure.code)
    if result.resume_handle:
        context.log.info(
            "to resume transfer %s within 24 h, re-execute this run from failure, or give "
            "skyplane-orch resume the resume_handle of skyplane/result in this step's metadata",
            result.transfer_key,
        )
