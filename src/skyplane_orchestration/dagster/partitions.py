"""The partitions of a run: their keys, and one plan for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import dagster as dg

from skyplane_orchestration.dagster.placeholders import (
    ASSET_KEY,
    PARTITION_KEY,
    Values,
    filled_job,
    filled_url,
    names_in,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.output_format import require_manifest

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.transfer.job_run import JobRun

#: The context of an op or of an asset.
AnyContext = dg.OpExecutionContext | dg.AssetExecutionContext

#: None for an asset without partitions.
AnyPartitions = dg.PartitionsDefinition[str] | None

#: The key of the one job of a run without partitions.
NO_PARTITION: Final = ""


def definition_of(context: AnyContext, asset: dg.AssetKey) -> AnyPartitions:
    """The partitions of an asset of the run; None if it has none."""
    return context.assets_def.specs_by_key[asset].partitions_def


def partitions_of(context: AnyContext, asset: dg.AssetKey) -> dict[str, Values]:
    """Key of each partition that a run materializes -> values of the placeholders.

    `NO_PARTITION` alone if the asset has no partitions, also when other assets of the run have.

    Raises ConfigurationInvalid: the asset has partitions, and the run has none.
    """
    if definition_of(context, asset) is None:
        return {NO_PARTITION: {}}
    if context.has_partition_key:
        return {str(context.partition_key): _values_of(context.partition_key)}
    if context.has_partition_key_range:
        return {str(key): _values_of(key) for key in context.partition_keys}
    raise ConfigurationInvalid(
        f"asset {asset.to_user_string()} has partitions, and this run has none; launch it for a "
        "partition"
    )


def _values_of(key: str) -> Values:
    dimensions = key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {}
    return {PARTITION_KEY: key} | {_of(name): value for name, value in dimensions.items()}


def _names_of(partitions: AnyPartitions) -> list[str]:
    """The placeholders of partitions: for the key, and for each of its dimensions."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return [PARTITION_KEY, *map(_of, partitions.partition_dimension_names)]
    return [] if partitions is None else [PARTITION_KEY]


def _of(dimension: str) -> str:
    return f"{PARTITION_KEY}.{dimension}"


def require_partitioned(job: TransferJob, partitions: AnyPartitions) -> None:
    """Raise ConfigurationInvalid unless each partition has a copy of its own.

    A placeholder that has no value is refused, and a dimension that is in no placeholder.
    """
    names = _names_of(partitions)
    filled_job(job, dict.fromkeys(names, "x"))
    destination = _place(job.destination)
    chosen = (_place(job.source), destination, *job.include, *(job.files_from or ()))
    _require_named(names, chosen, "each partition would copy the same", "source or destination")
    if job.delete:
        _require_named(
            names, (destination,), "a partition would delete the copies of others", "destination"
        )


def require_manifests(
    manifest: str | None, partitions: AnyPartitions, asset_count: int = 1
) -> None:
    """Raise ConfigurationInvalid unless each asset and partition has a manifest of its own."""
    if manifest is None:
        return
    require_manifest(manifest)
    names = _names_of(partitions)
    filled_url("manifest", manifest, dict.fromkeys((*names, ASSET_KEY), "x"))
    _require_named(names, (manifest,), "all partitions would have one manifest", "manifest")
    if asset_count > 1 and ASSET_KEY not in names_in(manifest):
        raise ConfigurationInvalid(
            f"manifest is one file for {asset_count} assets; put {{{ASSET_KEY}}} into it"
        )


def _place(location: Location) -> str:
    return f"{location.bucket}/{location.key}"


def _require_named(names: Sequence[str], texts: Iterable[str], otherwise: str, where: str) -> None:
    """Raise ConfigurationInvalid unless the texts name the whole key, or each of its dimensions."""
    named = {name for text in texts for name in names_in(text)}
    lacking = [name for name in names[1:] or names if name not in named]
    if lacking and PARTITION_KEY not in named:
        raise ConfigurationInvalid(
            f"partitions_def: {otherwise}, since {{{lacking[0]}}} is missing; put it into {where}"
        )


def require_one_fleet(policy: dg.BackfillPolicy | None, ends: Sequence[Location]) -> None:
    """Raise ConfigurationInvalid if one run may have partitions in different buckets."""
    if policy is None or policy.max_partitions_per_run == 1:
        return
    for end in ends:
        if names_in(end.bucket):
            raise ConfigurationInvalid(
                f"backfill_policy: one run copies all its partitions over one fleet, so they must "
                f"be in one bucket, and {end.url!r} has a bucket for each; use "
                "BackfillPolicy.multi_run()"
            )


def plan_of(client: Client, jobs: Sequence[TransferJob]) -> TransferPlan:
    """Check the jobs of a run, then make one plan for the volume of all of them.

    Raises as `JobRun.check`, `Client.plan` and `Client.plan_together`.
    """
    if len(jobs) == 1:
        (job,) = jobs
        job_run = _checked(client, job)
        plan = job_run.plan()
        return plan.without_work() if job_run.has_nothing_to_copy() else plan
    measured: list[TransferJob] = []
    notes: list[str] = []
    is_idle = True
    for job in jobs:
        # Each listing may keep many rows, so only one is kept at a time.
        job_run = _checked(client, job)
        known, more = job_run.measured()
        measured.append(known)
        notes += more
        is_idle = job_run.has_nothing_to_copy() and is_idle
    plan = client.plan_together(measured)
    plan = replace(plan, notes=(*plan.notes, *dict.fromkeys(notes)))
    return plan.without_work() if is_idle else plan


def _checked(client: Client, job: TransferJob) -> JobRun:
    job_run = client.job_run(job)
    job_run.check()
    return job_run
