"""`build_skyplane_transfer_asset`: one transfer as an asset with one op per step.

`build_skyplane_transfer_assets` makes such an asset for each of several destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

import dagster as dg

from skyplane_orchestration.dagster.job_arguments import JobArguments
from skyplane_orchestration.dagster.ops import (
    ASSET_OUTPUT,
    AssetTransfer,
    cleanup_hook,
    finish_op,
    plan_op,
    provision_op,
    teardown_op,
    transfer_op,
)
from skyplane_orchestration.dagster.partitions import (
    require_manifests,
    require_one_fleet,
    require_partitioned,
)
from skyplane_orchestration.dagster.placeholders import location_of
from skyplane_orchestration.dagster.translator import (
    definition_metadata,
    description_of,
    kinds_of,
    source_key,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location


class AssetOptions(JobArguments, total=False):
    """The arguments of `build_skyplane_transfer_asset` other than name, source and destination."""

    key_prefix: Sequence[str]
    deps: Sequence[dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str] | None
    group_name: str | None
    description: str | None
    partitions_def: dg.PartitionsDefinition[str] | None
    backfill_policy: dg.BackfillPolicy | None
    automation_condition: dg.AutomationCondition[Any] | None
    owners: Sequence[str]
    tags: Mapping[str, str] | None
    metadata: Mapping[str, Any] | None
    retry_policy: dg.RetryPolicy | None
    pool: str | None
    checks: bool
    manifest: str | None
    resource_key: str


@checks_arguments
def build_skyplane_transfer_asset(
    name: str,
    *,
    source: Location | str,
    destination: Location | str,
    key_prefix: Sequence[str] = (),
    deps: Sequence[dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str] | None = None,
    group_name: str | None = None,
    description: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    checks: bool = True,
    manifest: str | None = None,
    resource_key: str = "skyplane",
    **job: Unpack[JobArguments],
) -> dg.AssetsDefinition:
    """Make an asset whose materialization copies `source` to `destination`.

    Its ops are plan, provision, transfer, teardown and finish. If an op fails, a hook ends the
    gateways. If a run is terminated, the interrupted op ends them. If no process can do this,
    the sensor of `build_skyplane_cleanup_sensor` ends them; without it they end with their
    lease. A re-execution of a run resumes its transfer.

    Args:
        source, destination: URLs, or `Location`s with region, endpoint and credentials.
            `{partition_key}`, also in globs, `files_from` and `manifest`, is replaced by the key
            of the partition; `{partition_key.NAME}` by that of a dimension. A brace of the text
            itself is written twice.
        deps: upstream assets; by default one for the source, with the key that `skyplane_assets`
            gives it.
        description: both URLs by default.
        automation_condition: looks at the given `deps`, and not at the default one.
        backfill_policy: with `BackfillPolicy.single_run()` one run copies its partitions one after
            another over one fleet, which is planned for all of them. By default each partition
            has a run and a fleet.
        retry_policy: of every op; a retry joins the running transfer.
        pool: limits how many of the ops `plan`, `provision` and `transfer` run at once.
        checks: report the asset check `all_objects_copied`. A run may also leave it out.
        manifest: path or URL for the list of all objects, in the format of its suffix.
        resource_key: key of the `SkyplaneResource`.
        job: the other fields of `TransferJob`, such as `objective`.

    The data version of a materialization is a digest of the source (keys, sizes, ETags).

    Raises ConfigurationInvalid for an invalid job, an unknown placeholder, or partitions that
    would copy the same.
    """
    ends = location_of("source", source), location_of("destination", destination)
    asset = AssetTransfer(
        key=_key(key_prefix, name, checks=checks),
        job=TransferJob(*ends, **job),
        manifest=manifest,
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        checks=checks,
    )
    require_partitioned(asset.job, partitions_def)
    require_manifests(manifest, partitions_def)
    require_one_fleet(backfill_policy, ends)
    upstream = list(map(key_of, deps or ()))
    if deps is None:
        upstream = [source_key(asset.job.source)]
        automation_condition = _not_waiting_for(upstream[0], automation_condition)
    out = dg.AssetOut(
        key=asset.key,
        description=description_of(asset.job) if description is None else description,
        metadata={**definition_metadata(asset.job), **(metadata or {})},
        tags=tags,
        kinds=kinds_of(asset.job),
        owners=list(owners),
        automation_condition=automation_condition,
    )
    ins = {f"dep_{number}": dg.AssetIn(one) for number, one in enumerate(upstream)}
    return dg.graph_multi_asset(
        name=asset.key.to_python_identifier(),
        outs={ASSET_OUTPUT: out},
        ins=ins,
        partitions_def=partitions_def,
        group_name=group_name,
        backfill_policy=backfill_policy,
        check_specs=asset.check_specs,
        can_subset=True,  # A run may leave the check out.
    )(_steps_of(asset, ins))


def _key(key_prefix: Sequence[str], name: str, *, checks: bool) -> dg.AssetKey:
    """The key of an asset; Dagster makes the name of a field of it, and of the check."""
    parts = [*key_prefix, name]
    if not all(parts) or (checks and not parts[0][0].isalpha()):
        raise ConfigurationInvalid(
            f"name: {'/'.join(parts)!r} is no asset key; it begins with a letter, and no part of it"
            " is empty"
        )
    return dg.AssetKey(parts)


def _steps_of(asset: AssetTransfer, waits_for: Iterable[str]) -> Callable[..., Any]:
    """The graph of an asset; `plan` waits for the upstream assets."""

    def steps(**upstream_assets: Any) -> Any:
        # A docstring would be the asset's description.
        hooks = {cleanup_hook(asset)}
        plan = plan_op(asset, waits_for).alias("plan")(**upstream_assets)
        fleet = provision_op(asset).alias("provision").with_hooks(hooks)(plan=plan)
        outcome = transfer_op(asset).alias("transfer").with_hooks(hooks)(fleet=fleet)
        torn_down = teardown_op(asset).alias("teardown").with_hooks(hooks)(outcome=outcome)
        done = finish_op(asset).alias("finish")(outcome=outcome, torn_down=torn_down)
        if not asset.checks:
            return {ASSET_OUTPUT: done}
        names = (ASSET_OUTPUT, *(spec.get_python_identifier() for spec in asset.check_specs))
        return {name: getattr(done, name) for name in names}

    return steps


@checks_arguments
def build_skyplane_transfer_assets(
    destinations: Mapping[str, Location | str],
    *,
    source: Location | str,
    **options: Unpack[AssetOptions],
) -> list[dg.AssetsDefinition]:
    """Make an asset for each of several destinations of one source.

    Each has its own steps and its own fleet, so that one can fail, be retried or be scheduled
    without the others; the bytes leave the source once for each.

    Args:
        destinations: name of the asset -> where it is copied to.
        options: as in `build_skyplane_transfer_asset`, for each asset. In `manifest`, `{asset_key}`
            is replaced by the key of the asset.

    Raises ConfigurationInvalid for an invalid job, and if two assets have one manifest.
    """
    made = [
        build_skyplane_transfer_asset(name, source=source, destination=destination, **options)
        for name, destination in destinations.items()
    ]
    require_manifests(options.get("manifest"), options.get("partitions_def"), len(made))
    return made


def _not_waiting_for(
    source: dg.AssetKey, condition: dg.AutomationCondition[Any] | None
) -> dg.AutomationCondition[Any] | None:
    """The condition without the source, of which no event tells when it changes.

    With it, `on_cron` would wait for ever. A condition that looks at no dependency has no `ignore`.
    """
    ignore = getattr(condition, "ignore", None)
    return condition if ignore is None else ignore(dg.AssetSelection.assets(source))


def key_of(dep: dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str) -> dg.AssetKey:
    """The key of an asset; a text is as Dagster's page writes it."""
    if isinstance(dep, dg.AssetsDefinition | dg.AssetSpec):
        return dep.key
    return dep if isinstance(dep, dg.AssetKey) else dg.AssetKey.from_user_string(dep)
