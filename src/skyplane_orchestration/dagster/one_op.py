"""The one-op form: plan, provision, transfer and teardown of each selected asset in one op.

The client takes the gateways of a transfer down after success, error and interruption. If its
process is killed, the cleanup sensor finds them by the tags of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_orchestration.dagster.cleanup import tag_run
from skyplane_orchestration.dagster.metadata import Metadata, materialization_metadata
from skyplane_orchestration.dagster.ops import AssetTransfer, failure_of, log_failure, result_of
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.transfer.progress_log import ProgressLog, heading
from skyplane_orchestration.transfer.task_log import log_fleet, log_result

if TYPE_CHECKING:
    from skyplane_orchestration.dagster.resources import SkyplaneResource
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.provision.in_process import GatewayPlace

#: Metadata of an asset's definition: its job, `TransferJob.to_dict()`.
JOB_METADATA: Final = "skyplane/job"

#: In a manifest: replaced by the key of the asset.
ASSET_KEY: Final = "{asset_key}"


@dataclass(frozen=True, slots=True)
class OneOp:
    """Copies for the op of `context`; see `SkyplaneResource.run`."""

    resource: SkyplaneResource
    context: dg.AssetExecutionContext
    gateways: GatewayPlace

    def run(
        self, job: TransferJob | None, manifest: str | None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """Copy for one asset after the other; fail at the end if a copy has failed."""
        partitions = _partition_keys(self.context)
        failed: dict[str, SkyplaneError] = {}
        for asset in self._selected(job, manifest):
            copied: dict[str, Metadata] = {}
            for partition in partitions:
                try:
                    copied[partition] = self._copy(asset, partition)
                except SkyplaneError as error:
                    name = " ".join(filter(None, (asset.key.to_user_string(), partition)))
                    failed[name] = error
                    self._log_failure(name, error)
            if len(copied) == len(partitions):
                yield self._result(asset.key, copied)
        if failed:
            raise _failure(failed) from next(iter(failed.values()))

    def _selected(self, job: TransferJob | None, manifest: str | None) -> list[AssetTransfer]:
        """The selected assets in the order of their definition."""
        selected = self.context.selected_asset_keys
        try:
            _require_one(selected, job, manifest)
            return [
                AssetTransfer(
                    key=spec.key,
                    job=job or _job_of(spec),
                    manifest=manifest and manifest.replace(ASSET_KEY, "/".join(spec.key.path)),
                )
                for spec in self.context.assets_def.specs
                if spec.key in selected
            ]
        except SkyplaneError as error:
            raise failure_of(error) from error

    def _copy(self, asset: AssetTransfer, partition: str) -> Metadata:
        context, resource = self.context, self.resource
        job = asset.job_in(partition)
        client = resource.client(
            asset.identity(resource.deployment, context.run, partition), self.gateways
        )
        tag_run(context, client)
        context.log.info(heading(job))
        fleets: list[Fleet] = []

        def on_fleet(fleet: Fleet) -> None:
            fleets.append(fleet)
            log_fleet(context.log, fleet)

        listing = client.source_listing()
        client.check_deletes(job, listing=listing)
        result = client.run(
            job,
            listing=listing,
            on_fleet=on_fleet,
            on_status=ProgressLog(context.log.info),
            manifest=asset.manifest_in(partition),
        )
        log_result(context.log, result)
        return materialization_metadata(job, fleets[-1].plan if fleets else None, result)

    def _log_failure(self, name: str, error: SkyplaneError) -> None:
        self.context.log.error("%s: %s: %s", name, error.code, error)
        command = self.resource.command("resume", "RESULT.json")
        log_failure(self.context.log, result_of(error), command)

    def _result(
        self, key: dg.AssetKey, copied: Mapping[str, Metadata]
    ) -> dg.MaterializeResult[Any]:
        if not self.context.has_partition_key_range:
            (metadata,) = copied.values()
            return dg.MaterializeResult(asset_key=key, metadata=metadata)
        # Dagster makes a materialization of each partition from the one result.
        for partition, metadata in copied.items():
            self.context.add_asset_metadata(metadata, asset_key=key, partition_key=partition)
        return dg.MaterializeResult(asset_key=key)


def _partition_keys(context: dg.AssetExecutionContext) -> list[str]:
    """The partitions of the run; one empty key if it has none."""
    if context.has_partition_key or context.has_partition_key_range:
        return list(context.partition_keys)
    return [""]


def _require_one(
    selected: set[dg.AssetKey] | frozenset[dg.AssetKey],
    job: TransferJob | None,
    manifest: str | None,
) -> None:
    """Raises ConfigurationInvalid: an argument of one asset is given for several."""
    if len(selected) == 1:
        return
    if job is not None:
        raise ConfigurationInvalid(
            f"job is for one asset, and this op makes {len(selected)}; give skyplane_assets the"
            " jobs, and leave out job"
        )
    if manifest is not None and ASSET_KEY not in manifest:
        raise ConfigurationInvalid(
            f"manifest is one file for {len(selected)} assets; put {ASSET_KEY} into it"
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
