"""The one-op form: plan, provision, transfer and teardown of each selected asset in one op.

The client takes the gateways of a transfer down after success, error and interruption. If its
process is killed, the cleanup sensor finds them by the tags of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_gateway.common.schema import checked
from skyplane_orchestration.dagster.checks import checks_of, require_materialized
from skyplane_orchestration.dagster.cleanup import tag_run
from skyplane_orchestration.dagster.metadata import (
    Metadata,
    data_version_of,
    materialization_metadata,
    with_manifest,
)
from skyplane_orchestration.dagster.ops import (
    AssetTransfer,
    as_failures,
    copied,
    failure_of,
    log_failure,
)
from skyplane_orchestration.dagster.partitions import NO_PARTITION
from skyplane_orchestration.errors import ConfigurationInvalid, DestinationsFailed, SkyplaneError
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import failed_result
from skyplane_orchestration.transfer.task_log import RunLog, log_result

if TYPE_CHECKING:
    from skyplane_orchestration.dagster.resources import SkyplaneResource
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.result import TransferResult

#: Metadata of an asset's definition: its job, `TransferJob.to_dict()`.
JOB_METADATA: Final = "skyplane/job"

#: What the op of an asset yields.
Event = dg.MaterializeResult[Any] | dg.AssetCheckResult


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of one partition, or of an asset without partitions."""

    metadata: Metadata
    result: TransferResult


@dataclass(frozen=True, slots=True)
class OneOp:
    """Copies for the op of `context`; see `SkyplaneResource.run`."""

    resource: SkyplaneResource
    context: dg.AssetExecutionContext
    gateways: GatewayPlace
    one_fleet: bool = False

    def run(
        self, job: TransferJob | None, manifest: str | None, made_for: str | None
    ) -> Iterator[Event]:
        """Copy for one asset after the other; fail at the end if a copy has failed."""
        failed: dict[str, SkyplaneError] = {}
        selected = self._selected(job, manifest, made_for)
        copy: Callable[[AssetTransfer, str, TransferJob], Copy] = self._copy
        if self.one_fleet and len(selected) > 1:
            with as_failures():
                copy = self._together(selected, manifest)
        for asset, jobs in selected:
            errors: list[SkyplaneError] = []
            copies: dict[str, Copy] = {}
            for partition, partition_job in jobs.items():
                try:
                    copies[partition] = copy(asset, partition, partition_job)
                except SkyplaneError as error:
                    name = " ".join(filter(None, (asset.key.to_user_string(), partition)))
                    self._log_failure(name, error)
                    failed[name] = error
                    errors.append(error)
            if errors:
                yield from self._failed_check(asset, copies, errors)
            else:
                yield self._materialized(asset, copies)
        if failed:
            raise _failure(failed) from next(iter(failed.values()))

    def _selected(
        self, job: TransferJob | None, manifest: str | None, made_for: str | None
    ) -> list[tuple[AssetTransfer, dict[str, TransferJob]]]:
        """The selected assets in the order of their definition, with the jobs of partitions."""
        selected = self.context.selected_asset_keys
        with as_failures():
            checked(TransferJob | None, job, "job")
            checked(str | None, manifest, "manifest")
            checked(str | None, made_for, "partition_key")
            checked(GatewayPlace, self.gateways, "gateways")
            require_materialized(self.context)
            _require_one(selected, job, made_for)
            assets = [
                AssetTransfer(spec.key, job or _job_of(spec), manifest, made_for)
                for spec in self.context.assets_def.specs
                if spec.key in selected
            ]
            return [(asset, asset.jobs_of(self.context, len(assets))) for asset in assets]

    def _copy(self, asset: AssetTransfer, partition: str, job: TransferJob) -> Copy:
        context, resource = self.context, self.resource
        identity = asset.identity(resource.deployment, context.run, partition)
        client = resource.client(identity, self.gateways)
        tag_run(context, client)
        fleets: list[Fleet] = []
        manifest = asset.manifest_of(context, partition)
        result = copied(context.log, client, job, fleets, manifest)
        plan = fleets[-1].plan if fleets else None
        metadata = materialization_metadata(job, plan, result)
        return Copy(metadata, with_manifest(client, job, result))

    def _together(
        self,
        selected: Sequence[tuple[AssetTransfer, Mapping[str, TransferJob]]],
        manifest: str | None,
    ) -> Callable[[AssetTransfer, str, TransferJob], Copy]:
        """Copy for all assets over one fleet; what then gives the copy of each, or its error."""
        context, (first, own) = self.context, selected[0]
        jobs = [job for _, jobs in selected for job in jobs.values()]
        partition = next(iter(own))
        same = [replace(job, destination=jobs[0].destination) == jobs[0] for job in jobs]
        if len(jobs) != len(selected) or not all(same):
            raise ConfigurationInvalid(
                "one_fleet is for assets that copy one source and differ in their destinations"
                " alone, one partition at a time"
            )
        client = self.resource.client(
            first.identity(self.resource.deployment, context.run, partition), self.gateways
        )
        tag_run(context, client)
        run = RunLog(context.log, [])
        errors: Mapping[str, SkyplaneError] = {}
        further = [job.destination for job in jobs[1:]]
        arguments = run.arguments(manifest)
        # Progress of several transfers in turns would tell nothing.
        del arguments["on_status"]
        try:
            results = client.run_to_all(jobs[0], further, **arguments)
        except DestinationsFailed as error:
            results, errors = dict(error.results), error.errors

        def copy(asset: AssetTransfer, partition: str, job: TransferJob) -> Copy:
            url = job.destination.url
            if url in errors:
                raise errors[url]
            result = results[url]
            log_result(context.log, result)
            plan = run.plans.get(result.transfer_key)
            metadata = materialization_metadata(job, plan, result)
            return Copy(metadata, with_manifest(client, job, result))

        return copy

    def _log_failure(self, name: str, error: SkyplaneError) -> None:
        self.context.log.error("%s: %s: %s", name, error.code, error)
        command = self.resource.command("resume", "RESULT.json")
        log_failure(self.context.log, failed_result(error), command)

    def _materialized(
        self, asset: AssetTransfer, copies: Mapping[str, Copy]
    ) -> dg.MaterializeResult[Any]:
        results = [copy.result for copy in copies.values()]
        metadata = None
        if self.context.has_partition_key_range and NO_PARTITION not in copies:
            # Dagster makes a materialization of each partition from the one result.
            for partition, copy in copies.items():
                self.context.add_asset_metadata(copy.metadata, asset.key, partition)
        else:
            (metadata,) = (copy.metadata for copy in copies.values())
        return dg.MaterializeResult(
            asset_key=asset.key,
            metadata=metadata,
            data_version=data_version_of(results),
            check_results=list(
                checks_of(
                    dg.AssetCheckResult,
                    self.context,
                    asset.key,
                    results,
                    allow_failed=asset.job.allow_failed,
                )
            ),
        )

    def _failed_check(
        self, asset: AssetTransfer, copies: Mapping[str, Copy], errors: Sequence[SkyplaneError]
    ) -> Iterator[dg.AssetCheckResult]:
        """The check of an asset that is not materialized, if a failed copy has a result."""
        failed = [result for error in errors if (result := failed_result(error)) is not None]
        if failed:
            results = [*(copy.result for copy in copies.values()), *failed]
            yield from checks_of(dg.AssetCheckResult, self.context, asset.key, results)


def _require_one(
    selected: set[dg.AssetKey] | frozenset[dg.AssetKey],
    job: TransferJob | None,
    made_for: str | None,
) -> None:
    """Raises ConfigurationInvalid: an argument of one asset is given for several."""
    if job is None and made_for is not None:
        raise ConfigurationInvalid("partition_key says what job is made for; give job too")
    if job is not None and len(selected) > 1:
        raise ConfigurationInvalid(
            f"job is for one asset, and this op makes {len(selected)}; give skyplane_assets the"
            " jobs, and leave out job"
        )


def _job_of(spec: dg.AssetSpec) -> TransferJob:
    """Raises ConfigurationInvalid."""
    document = spec.metadata.get(JOB_METADATA)
    if not isinstance(document, dg.JsonMetadataValue):
        raise ConfigurationInvalid(
            f"asset {spec.key.to_user_string()} has no job; define it with skyplane_assets, or"
            " give run() a job"
        )
    return TransferJob.from_dict(document.value)  # type: ignore[arg-type]


def _failure(failed: Mapping[str, SkyplaneError]) -> dg.Failure:
    """One failure for all; Dagster retries it if a retry can help one."""
    failures = {name: failure_of(error) for name, error in failed.items()}
    if len(failures) == 1:
        return next(iter(failures.values()))
    return dg.Failure(
        description="; ".join(f"{name}: {one.description}" for name, one in failures.items()),
        metadata={
            f"{what}/{name}": value
            for name, one in failures.items()
            for what, value in one.metadata.items()
        },
        allow_retries=any(one.allow_retries for one in failures.values()),
    )
