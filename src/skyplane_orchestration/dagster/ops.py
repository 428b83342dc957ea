"""The ops of a transfer asset: plan, provision, transfer, teardown, finish.

Small documents pass between the ops. Dagster skips the ops after a failed one; `cleanup_hook`
then ends the gateways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_orchestration.dagster.cleanup import tag_run
from skyplane_orchestration.dagster.metadata import materialization_metadata, plan_metadata
from skyplane_orchestration.errors import SkyplaneError, TransferFailed
from skyplane_orchestration.model.fleet import Fleet, where_gateways_run
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.transfer.progress_log import ProgressLog, heading
from skyplane_orchestration.transfer.task_log import (
    log_failures,
    log_fleet,
    log_result,
    log_submitted,
    log_teardown,
)

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.transfer.control import SubmittedTransfer

Document = dict[str, Any]

#: In a URL: replaced by the key of the materialized partition.
PARTITION_KEY: Final = "{partition_key}"

#: Dagster's tag for the partition of a run.
_PARTITION_TAG: Final = "dagster/partition"


@dataclass(frozen=True, slots=True)
class AssetTransfer:
    """The transfer of one asset, as its ops share it.

    Args:
        key: key of the asset; with the id of the first run it names the fleet.
        job: its URLs may contain `PARTITION_KEY`.
        manifest: path or URL for the list of all objects; may contain `PARTITION_KEY`.
        resource_key: key of the `SkyplaneResource`.
        retry_policy: of every op; a retry finds the fleet and the transfer of the first try.
    """

    key: dg.AssetKey
    job: TransferJob
    manifest: str | None = None
    resource_key: str = "skyplane"
    retry_policy: dg.RetryPolicy | None = None

    def op(
        self, name: str, *, ins: Mapping[str, dg.In] | None = None, out: dg.Out | None = None
    ) -> Callable[[Callable[..., Any]], dg.OpDefinition]:
        """The decorator of one op."""
        decorator: Callable[[Callable[..., Any]], dg.OpDefinition] = dg.op(
            name=self.name_of(name),
            ins=dict(ins or {}),
            out=out or dg.Out(dict),
            required_resource_keys={self.resource_key},
            retry_policy=self.retry_policy,
        )

        def make(body: Callable[..., Any]) -> dg.OpDefinition:
            # Dagster reads the annotation of `context` and cannot resolve a postponed one. It
            # takes the types of inputs and outputs from `ins` and `out`.
            body.__annotations__ = {"context": dg.OpExecutionContext}
            return decorator(body)

        return make

    def name_of(self, part: str) -> str:
        """The name of an op or a hook, which is unique in a code location."""
        return "__".join([*self.key.path, part]).replace("-", "_")

    def client(self, resources: object, run: dg.DagsterRun) -> Client:
        """The client for this asset, run and partition."""
        resource = getattr(resources, self.resource_key)
        partition = run.tags.get(_PARTITION_TAG, "")
        client: Client = resource.client(self.identity(resource.deployment, run, partition))
        return client

    def client_of(self, context: dg.OpExecutionContext) -> Client:
        return self.client(context.resources, context.run)

    def identity(self, deployment: str, run: dg.DagsterRun, partition: str) -> RunIdentity:
        """The same for a run and its re-executions, which resume its transfer."""
        return RunIdentity(
            deployment=deployment,
            owner=self.key.to_user_string(),
            run=run.root_run_id or run.run_id,
            group=partition,
        )

    def job_of(self, context: dg.OpExecutionContext) -> TransferJob:
        """The job of the partition."""
        return self.job_in(_partition_key(context))

    def job_in(self, partition: str) -> TransferJob:
        """The job of a partition, by its key."""
        return replace(
            self.job,
            source=_in_partition(self.job.source, partition),
            destination=_in_partition(self.job.destination, partition),
        )

    def manifest_of(self, context: dg.OpExecutionContext) -> str | None:
        return self.manifest_in(_partition_key(context))

    def manifest_in(self, partition: str) -> str | None:
        return self.manifest and self.manifest.replace(PARTITION_KEY, partition)


def _partition_key(context: dg.OpExecutionContext) -> str:
    return context.partition_key if context.has_partition_key else ""


def _in_partition(location: Location, partition: str) -> Location:
    if PARTITION_KEY not in location.url:
        return location
    return replace(location, url=location.url.replace(PARTITION_KEY, partition))


# ---------------------------------------------------------------- errors


def failure_of(error: SkyplaneError) -> dg.Failure:
    """The failure of an op; Dagster retries it only if a retry can help."""
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "skyplane/error": dg.MetadataValue.json(error.to_dict())
    }
    result = result_of(error)
    if result is not None:
        metadata["skyplane/result"] = dg.MetadataValue.json(result.to_dict())
    return dg.Failure(
        description=f"{error.code}: {error}",
        metadata=metadata,
        allow_retries=not error.is_permanent,
    )


def result_of(error: SkyplaneError) -> TransferResult | None:
    result = error.result if isinstance(error, TransferFailed) else None
    return result if isinstance(result, TransferResult) else None


@contextmanager
def _as_failures() -> Iterator[None]:
    try:
        yield
    except SkyplaneError as error:
        raise failure_of(error) from error


# ---------------------------------------------------------------- ops


def plan_op(asset: AssetTransfer, waits_for: Iterable[str]) -> dg.OpDefinition:
    @asset.op("plan", ins={name: dg.In(dg.Nothing) for name in waits_for})
    def plan(context: dg.OpExecutionContext) -> Document:
        with _as_failures():
            client, job = asset.client_of(context), asset.job_of(context)
            context.log.info(heading(job))
            client.check_destination(job)
            listing = client.source_listing()
            client.check_deletes(job, listing=listing)
            found = client.plan(job, listing=listing)
            if client.has_nothing_to_copy(job, listing=listing):
                found = found.without_work()
        context.add_output_metadata(plan_metadata(found))
        return found.to_dict()

    return plan


def provision_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("provision", ins={"plan": dg.In(dict)})
    def provision(context: dg.OpExecutionContext, plan: Document) -> Document:
        with _as_failures():
            client = asset.client_of(context)
            tag_run(context, client)
            # After a failure or an interruption no started gateway is left.
            found = TransferPlan.from_dict(plan)
            fleet = client.provision(found, job=asset.job_of(context))
        log_fleet(context.log, fleet)
        context.log.info(
            "if this run is terminated, the sensor of build_skyplane_cleanup_sensor() ends the "
            "gateways; without it they end with their lease"
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


def transfer_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("transfer", ins={"fleet": dg.In(dict)})
    def transfer(context: dg.OpExecutionContext, fleet: Document) -> Document:
        client, job = asset.client_of(context), asset.job_of(context)
        tag_run(context, client)
        context.log.info(heading(job))
        # The client may replace the fleet during the transfer.
        fleets = [Fleet.from_dict(fleet)]

        def on_submitted(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            fleets.append(fleet)
            log_submitted(context.log, submitted)

        try:
            result = client.transfer(
                job,
                fleets[0],
                on_submitted=on_submitted,
                on_status=ProgressLog(context.log.info),
                manifest=asset.manifest_of(context),
            )
        except SkyplaneError as error:
            resource = getattr(context.resources, asset.resource_key)
            log_failure(context.log, result_of(error), resource.command("resume", "RESULT.json"))
            raise failure_of(error) from error
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt, SystemExit):
            # The run is terminated: Dagster runs no other op and no hook.
            client.teardown_after_error(fleets[-1])
            raise
        log_result(context.log, result)
        return {"fleet": fleets[-1].to_dict(), "result": result.to_dict()}

    return transfer


def teardown_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("teardown", ins={"outcome": dg.In(dict)})
    def teardown(context: dg.OpExecutionContext, outcome: Document) -> Document:
        with _as_failures():
            report = asset.client_of(context).teardown(Fleet.from_dict(outcome["fleet"]))
        log_teardown(context.log, report, logging.DEBUG)
        return {"stopped": list(report.stopped)}

    return teardown


def finish_op(asset: AssetTransfer) -> dg.OpDefinition:
    ins = {"outcome": dg.In(dict), "torn_down": dg.In(dict)}

    @asset.op("finish", ins=ins, out=dg.Out(dg.Nothing))
    def finish(
        context: dg.OpExecutionContext, outcome: Document, torn_down: Document
    ) -> dg.Output[None]:
        metadata = materialization_metadata(
            asset.job_of(context),
            Fleet.from_dict(outcome["fleet"]).plan,
            TransferResult.from_dict(outcome["result"]),
        )
        return dg.Output(None, metadata=metadata)

    return finish


def cleanup_hook(asset: AssetTransfer) -> dg.HookDefinition:
    """The hook that ends the gateways when an op fails, since Dagster skips the next ops.

    It needs only the fleet's key. The journal of the transfer stays for a resume.
    """

    @dg.failure_hook(name=asset.name_of("cleanup"), required_resource_keys={asset.resource_key})
    def cleanup(context: dg.HookContext) -> None:
        run = context.instance.get_run_by_id(context.run_id)
        if run is None:
            context.log.error("run %s is gone; its gateways end with their lease", context.run_id)
            return
        client = asset.client(context.resources, run)
        log_teardown(context.log, client.teardown(client.identity.fleet_key()), logging.WARNING)

    return cleanup


def log_failure(log: logging.Logger, result: TransferResult | None, command: str) -> None:
    """Log the failed objects and how to resume; `command` is the one for a shell."""
    if result is None:
        return
    log_failures(log, result)
    if result.resume_handle:
        log.info(
            "to resume transfer %s within 24 h, re-execute this run from failure, or write "
            "skyplane/result of this op's metadata to RESULT.json and run %s",
            result.transfer_key,
            command,
        )
