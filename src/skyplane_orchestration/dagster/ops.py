"""The ops of a transfer asset: plan, provision, transfer, teardown, finish.

Small documents pass between the ops. Dagster skips the ops after a failed one; `cleanup_hook`
then ends the gateways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_orchestration.dagster.checks import check_spec, checks_of, require_materialized
from skyplane_orchestration.dagster.cleanup import tag_run
from skyplane_orchestration.dagster.metadata import (
    data_version_of,
    materialization_metadata,
    plan_metadata,
    with_manifest,
)
from skyplane_orchestration.dagster.partitions import (
    AnyContext,
    definition_of,
    partitions_of,
    plan_of,
    require_manifests,
    require_partitioned,
)
from skyplane_orchestration.dagster.placeholders import ASSET_KEY, filled_job, filled_url
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet, where_gateways_run
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult, failed_result
from skyplane_orchestration.transfer.actual_cost import own_costs
from skyplane_orchestration.transfer.progress_log import heading
from skyplane_orchestration.transfer.task_log import (
    RunLog,
    log_failures,
    log_fleet,
    log_full,
    log_result,
    log_teardown,
)

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client

Document = dict[str, Any]

#: Dagster's tag for the partition of a run.
_PARTITION_TAG: Final = "dagster/partition"

#: The output of a graph that is its asset.
ASSET_OUTPUT: Final = "result"


@dataclass(frozen=True, slots=True)
class AssetTransfer:
    """The transfer of one asset, as its ops share it.

    Args:
        key: key of the asset; with the id of the first run it names the fleet.
        job: its texts may contain placeholders for the partition.
        manifest: path or URL for the list of all objects; may contain them, and `ASSET_KEY`.
        made_for: key of the partition that the job is made for, without placeholders.
        resource_key: key of the `SkyplaneResource`.
        retry_policy: of every op; a retry finds the fleet and the transfer of the first try.
        pool: limits how many ops that plan, provision or transfer run at once. A teardown never
            waits for it.
        checks: report whether all objects were copied.
    """

    key: dg.AssetKey
    job: TransferJob
    manifest: str | None = None
    made_for: str | None = None
    resource_key: str = "skyplane"
    retry_policy: dg.RetryPolicy | None = None
    pool: str | None = None
    checks: bool = False

    @property
    def check_specs(self) -> tuple[dg.AssetCheckSpec, ...]:
        return (check_spec(self.key),) if self.checks else ()

    def op(
        self,
        name: str,
        *,
        ins: Mapping[str, dg.In] | None = None,
        out: dg.Out | Mapping[str, dg.Out] | None = None,
        pool: str | None = None,
    ) -> Callable[[Callable[..., Any]], dg.OpDefinition]:
        """The decorator of one op."""
        decorator: Callable[[Callable[..., Any]], dg.OpDefinition] = dg.op(
            name=op_name(self.key, name),
            ins=dict(ins or {}),
            out=out or dg.Out(dict),
            # Without a schema, Dagster accepts any run config of the op and ignores it.
            config_schema={},
            required_resource_keys={self.resource_key},
            retry_policy=self.retry_policy,
            pool=pool,
        )

        def make(body: Callable[..., Any]) -> dg.OpDefinition:
            # Dagster reads the annotation of `context` and cannot resolve a postponed one. It
            # takes the types of inputs and outputs from `ins` and `out`.
            body.__annotations__ = {"context": dg.AssetExecutionContext}
            return decorator(body)

        return make

    def client(self, resources: object, run: dg.DagsterRun) -> Client:
        """The client for this asset, run and partition."""
        resource = getattr(resources, self.resource_key)
        partition = run.tags.get(_PARTITION_TAG, "")
        client: Client = resource.client(self.identity(resource.deployment, run, partition))
        return client

    def client_of(self, context: AnyContext) -> Client:
        return self.client(context.resources, context.run)

    def identity(self, deployment: str, run: dg.DagsterRun, partition: str) -> RunIdentity:
        """The same for a run and its re-executions, which resume its transfer."""
        return RunIdentity(
            deployment=deployment,
            owner=self.key.to_user_string(),
            run=run.root_run_id or run.run_id,
            group=partition,
        )

    def jobs_of(self, context: AnyContext, asset_count: int = 1) -> dict[str, TransferJob]:
        """Partition key -> its job, for all partitions of the run; see `partitions_of`.

        Raises ConfigurationInvalid. The checks of the definition are made again,
        since Dagster can change its partitions afterwards.
        """
        partitions = partitions_of(context, self.key)
        if self.made_for is None:
            definition = definition_of(context, self.key)
            require_partitioned(self.job, definition)
            require_manifests(self.manifest, definition, asset_count)
        elif [*partitions] != [self.made_for]:
            raise ConfigurationInvalid(
                f"partition_key: job is made for {self.made_for!r}, and this run has "
                f"{', '.join(map(repr, partitions))}"
            )
        return {key: filled_job(self.job, values) for key, values in partitions.items()}

    def manifest_of(self, context: AnyContext, partition: str) -> str | None:
        """The manifest of a partition. Raises ConfigurationInvalid."""
        if self.manifest is None:
            return None
        values = partitions_of(context, self.key)[partition]
        own = {ASSET_KEY: "/".join(self.key.path)}
        return filled_url("manifest", self.manifest, {**values, **own})


def op_name(key: dg.AssetKey, part: str) -> str:
    """The name of an op or a hook of an asset, which is unique in a code location."""
    return "__".join([*key.path, part]).replace("-", "_")


# ---------------------------------------------------------------- errors


def failure_of(error: SkyplaneError) -> dg.Failure:
    """The failure of an op; Dagster retries it only if a retry can help."""
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "skyplane/error": dg.MetadataValue.json(error.to_dict())
    }
    result = failed_result(error)
    if result is not None:
        metadata["skyplane/result"] = dg.MetadataValue.json(result.to_dict())
    return dg.Failure(
        description=f"{error.code}: {error}",
        metadata=metadata,
        allow_retries=not error.is_permanent,
    )


@contextmanager
def as_failures() -> Iterator[None]:
    try:
        yield
    except SkyplaneError as error:
        raise failure_of(error) from error


# ---------------------------------------------------------------- ops


def plan_op(asset: AssetTransfer, waits_for: Iterable[str]) -> dg.OpDefinition:
    @asset.op("plan", ins={name: dg.In(dg.Nothing) for name in waits_for}, pool=asset.pool)
    def plan(context: dg.AssetExecutionContext) -> Document:
        with as_failures():
            require_materialized(context)
            jobs = list(asset.jobs_of(context).values())
            for job in jobs:
                context.log.info(heading(job))
            found = plan_of(asset.client_of(context), jobs)
        context.add_output_metadata(plan_metadata(found))
        return found.to_dict()

    return plan


def provision_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("provision", ins={"plan": dg.In(dict)}, pool=asset.pool)
    def provision(context: dg.AssetExecutionContext, plan: Document) -> Document:
        with as_failures():
            client = asset.client_of(context)
            tag_run(context, client)
            # After a failure or an interruption no started gateway is left.
            found = TransferPlan.from_dict(plan)
            job = next(iter(asset.jobs_of(context).values()))
            fleet = client.provision(found, job=job, on_full=partial(log_full, context.log))
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
                # The plan op shows the plan that was refused.
                **(plan_metadata(fleet.plan) if fleet.plan.replaces else {}),
            }
        )
        return fleet.to_dict()

    return provision


def transfer_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("transfer", ins={"fleet": dg.In(dict)}, pool=asset.pool)
    def transfer(context: dg.AssetExecutionContext, fleet: Document) -> Iterator[Any]:
        client = asset.client_of(context)
        tag_run(context, client)
        # The client may replace the fleet during a transfer.
        fleets = [Fleet.from_dict(fleet)]
        done: dict[str, tuple[Fleet, TransferResult]] = {}
        try:
            for partition, job in asset.jobs_of(context).items():
                manifest = asset.manifest_of(context, partition)
                result = copied(context.log, client, job, fleets, manifest)
                done[partition] = fleets[-1], result
        except SkyplaneError as error:
            failed = failed_result(error)
            resource = getattr(context.resources, asset.resource_key)
            log_failure(context.log, failed, resource.command("resume", "RESULT.json"))
            if failed is not None:
                all_results = [*(result for _, result in done.values()), failed]
                yield from checks_of(dg.AssetCheckEvaluation, context, asset.key, all_results)
            raise failure_of(error) from error
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt, SystemExit):
            # The run is terminated: Dagster runs no other op and no hook.
            client.teardown_after_error(fleets[-1])
            raise
        results = own_costs(list(done.values()))
        documents = {one: result.to_dict() for one, result in zip(done, results, strict=True)}
        yield dg.Output({"fleet": fleets[-1].to_dict(), "results": documents})

    return transfer


def copied(
    log: logging.Logger, client: Client, job: TransferJob, fleets: list[Fleet], manifest: str | None
) -> TransferResult:
    """Run one job on the last of the fleets, and add those that replace it.

    Without a fleet the job has one of its own, which ends with it.
    """
    log.info(heading(job))
    run = partial(client.transfer, job, fleets[-1]) if fleets else partial(client.run, job)
    result = run(**RunLog(log, fleets).arguments(manifest))
    log_result(log, result)
    return result


def teardown_op(asset: AssetTransfer) -> dg.OpDefinition:
    @asset.op("teardown", ins={"outcome": dg.In(dict)})
    def teardown(context: dg.AssetExecutionContext, outcome: Document) -> Document:
        with as_failures():
            report = asset.client_of(context).teardown(Fleet.from_dict(outcome["fleet"]))
        log_teardown(context.log, report, logging.DEBUG)
        return {"stopped": list(report.stopped)}

    return teardown


def finish_op(asset: AssetTransfer) -> dg.OpDefinition:
    """Its outputs are `ASSET_OUTPUT` and the checks, as the graph of the asset names them."""
    ins = {"outcome": dg.In(dict), "torn_down": dg.In(dict)}
    checks = (spec.get_python_identifier() for spec in asset.check_specs)
    out = {
        ASSET_OUTPUT: dg.Out(dg.Nothing),
        **{name: dg.Out(dg.Nothing, is_required=False) for name in checks},
    }

    @asset.op("finish", ins=ins, out=out)
    def finish(
        context: dg.AssetExecutionContext, outcome: Document, torn_down: Document
    ) -> Iterator[Any]:
        plan = Fleet.from_dict(outcome["fleet"]).plan
        results = {
            partition: TransferResult.from_dict(document)
            for partition, document in outcome["results"].items()
        }
        client, versions = asset.client_of(context), []
        for partition, job in asset.jobs_of(context).items():
            metadata = materialization_metadata(job, plan, results[partition])
            context.add_asset_metadata(metadata, asset.key, partition or None)
            versions.append(with_manifest(client, job, results[partition]))
        version = data_version_of(versions)
        if version is not None:
            context.set_data_version(asset.key, version)
        yield dg.Output(None, ASSET_OUTPUT)
        allow_failed = asset.job.allow_failed
        yield from checks_of(
            dg.AssetCheckResult, context, asset.key, results.values(), allow_failed=allow_failed
        )

    return finish


def cleanup_hook(asset: AssetTransfer) -> dg.HookDefinition:
    """The hook that ends the gateways when an op fails, since Dagster skips the next ops.

    It needs only the fleet's key. The journal of the transfer stays for a resume.
    """

    @dg.failure_hook(
        name=op_name(asset.key, "cleanup"), required_resource_keys={asset.resource_key}
    )
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
