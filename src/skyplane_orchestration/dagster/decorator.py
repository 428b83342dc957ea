"""`skyplane_assets`: several transfers as the assets of one op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from skyplane_orchestration.dagster.checks import check_spec
from skyplane_orchestration.dagster.one_op import JOB_METADATA
from skyplane_orchestration.dagster.partitions import require_partitioned
from skyplane_orchestration.dagster.translator import (
    DagsterSkyplaneTranslator,
    SkyplaneTranslatorData,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.job import TransferJob


@checks_arguments
def skyplane_assets(
    *,
    jobs: Mapping[str, TransferJob],
    translator: DagsterSkyplaneTranslator | None = None,
    name: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    checks: bool = True,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make the function an op with one asset per job; a run may select some of them.

        @skyplane_assets(jobs={"models_paris": TransferJob(SOURCE, PARIS), ...})
        def models(context: dg.AssetExecutionContext, skyplane: SkyplaneResource):
            yield from skyplane.run(context=context)

    The op copies for one selected asset after the other, each with gateways of its own.

    Args:
        jobs: name of the asset -> its transfer. placeholders are those of
            `build_skyplane_transfer_asset`.
        translator: makes the assets' keys, dependencies, groups and tags.
        name: of the op; the name of the function by default.
        backfill_policy: with `single_run`, one op copies all partitions of a backfill.
        pool: limits how many ops of the pool run at the same time.
        retry_policy: of the op; a retry continues failed transfers and repeats the others.
        checks: report the asset check `all_objects_copied` of each asset.

    Raises ConfigurationInvalid for no jobs, a name that is no asset key, an unknown placeholder,
    or partitions that would copy the same.
    """
    if not jobs:
        raise ConfigurationInvalid("jobs is empty; give at least one TransferJob by its name")
    translator = translator or DagsterSkyplaneTranslator()
    specs = []
    for asset, job in jobs.items():
        # The op takes the job from the metadata.
        metadata = {JOB_METADATA: dg.MetadataValue.json(job.to_dict())}
        spec = translator.get_asset_spec(SkyplaneTranslatorData(asset, job))
        spec = spec.merge_attributes(metadata=metadata)
        if partitions_def is not None:
            spec = spec.replace_attributes(partitions_def=partitions_def)
        require_partitioned(job, spec.partitions_def)
        specs.append(spec)
    return dg.multi_asset(
        specs=specs,
        check_specs=[check_spec(spec.key) for spec in specs] if checks else None,
        name=name,
        can_subset=True,
        backfill_policy=backfill_policy,
        pool=pool,
        op_tags=op_tags,
        retry_policy=retry_policy,
    )
