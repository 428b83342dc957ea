"""`build_skyplane_transfer_asset`: one transfer as an asset whose steps are visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

import dagster as dg

from skyplane_gateway.config import ConflictRule, Verification
from skyplane_orchestration.dagster.ops import (
    TransferSteps,
    cleanup_hook,
    finish_op,
    plan_op,
    provision_op,
    teardown_op,
    transfer_op,
)
from skyplane_orchestration.model.job import (
    Limits,
    Objective,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location

#: How Dagster stores the badges of an asset.
_KIND_TAG: Final = "dagster/kind/"

_RESULT: Final = "result"


class JobOptions(TypedDict, total=False):
    """The fields of `TransferJob` beside its ends."""

    objective: Objective | None
    recursive: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    conflict: ConflictRule
    publish_last: tuple[str, ...]
    verify: Verification
    allow_empty: bool
    allow_failed: bool
    limits: Limits
    policy: Policy
    volume_gb: float | None
    objects: int | None
    move: bool
    strict_metadata: bool
    guess_mime_type: bool


def build_skyplane_transfer_asset(
    name: str,
    *,
    source: Location | str,
    destination: Location | str,
    key_prefix: Sequence[str] = (),
    deps: Sequence[dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str] = (),
    group_name: str | None = None,
    description: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    manifest: str | None = None,
    resource_key: str = "skyplane",
    **job: Unpack[JobOptions],
) -> dg.AssetsDefinition:
    """An asset that is materialized by copying `source` to `destination`.

    Its steps are plan, provision, transfer, teardown and finish. When one fails, a hook takes
    the gateways down in place of `teardown`. When a run is terminated, the step that is
    interrupted does. Where none can (a killed process, termination between two steps) the
    sensor of `build_skyplane_cleanup_sensor` does; without it they end with their lease.
    A re-execution of a run, from its failure or whole, goes on with its transfer.

    Args:
        source, destination: URLs, or `Location`s with region, endpoint and credentials. A
            `{partition_key}` in them becomes the key of the partition.
        deps: assets that must be there before.
        retry_policy: of every step. A retried transfer joins the one that runs.
        manifest: path or URL where the list of all objects is written (Parquet).
        resource_key: of the `SkyplaneResource`.
        job: the other fields of `TransferJob`, `objective` first.

    Raises ConfigurationInvalid for a job that cannot be meant.
    """
    key = dg.AssetKey([*key_prefix, name])
    steps = TransferSteps(
        key=key,
        job=TransferJob(source=_location(source), destination=_location(destination), **job),
        manifest=manifest,
        resource_key=resource_key,
        retry_policy=retry_policy,
    )
    before = {f"dep_{number}": _key_of(dep) for number, dep in enumerate(deps)}
    badges = {f"{_KIND_TAG}skyplane": "", f"{_KIND_TAG}{steps.job.destination.kind}": ""}
    return dg.AssetsDefinition.from_graph(
        _graph(steps, tuple(before), description),
        keys_by_input_name=before,
        keys_by_output_name={_RESULT: key},
        partitions_def=partitions_def,
        group_name=group_name,
        descriptions_by_output_name={_RESULT: description} if description else None,
        metadata_by_output_name={
            _RESULT: {"dagster/uri": steps.job.destination.url, **(metadata or {})}
        },
        tags_by_output_name={_RESULT: {**badges, **(tags or {})}},
        owners_by_output_name={_RESULT: list(owners)} if owners else None,
        automation_conditions_by_output_name=(
            {_RESULT: automation_condition} if automation_condition else None
        ),
    )


def _location(place: Location | str) -> Location:
    return place if isinstance(place, Location) else Location(place)


def _key_of(dep: dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str) -> dg.AssetKey:
    if isinstance(dep, dg.AssetsDefinition | dg.AssetSpec):
        return dep.key
    return dep if isinstance(dep, dg.AssetKey) else dg.AssetKey.from_user_string(dep)


def _graph(
    steps: TransferSteps, deps: tuple[str, ...], description: str | None
) -> dg.GraphDefinition:
    """The five ops and what each waits for; `plan` waits for the assets that come before."""
    hooks = {cleanup_hook(steps)}
    ops = {
        "plan": plan_op(steps, {dep: dg.In(dg.Nothing) for dep in deps}),
        "provision": provision_op(steps),
        "transfer": transfer_op(steps),
        "teardown": teardown_op(steps),
        "finish": finish_op(steps),
    }
    plan, fleet = dg.DependencyDefinition("plan"), dg.DependencyDefinition("provision")
    outcome = dg.DependencyDefinition("transfer")
    return dg.GraphDefinition(
        name="__".join(steps.key.path).replace("-", "_"),
        description=description,
        node_defs=list(ops.values()),
        dependencies={
            dg.NodeInvocation(ops["plan"].name, alias="plan"): {},
            dg.NodeInvocation(ops["provision"].name, "provision", hook_defs=hooks): {"plan": plan},
            dg.NodeInvocation(ops["transfer"].name, "transfer", hook_defs=hooks): {"fleet": fleet},
            dg.NodeInvocation(ops["teardown"].name, "teardown", hook_defs=hooks): {
                "outcome": outcome
            },
            dg.NodeInvocation(ops["finish"].name, alias="finish"): {
                "plan": plan,
                "outcome": outcome,
                "torn_down": dg.DependencyDefinition("teardown"),
            },
        },
        input_mappings=[
            dg.InputMapping(
                graph_input_name=dep, mapped_node_name="plan", mapped_node_input_name=dep
            )
            for dep in deps
        ],
        output_mappings=[
            dg.OutputMapping(
                graph_output_name=_RESULT,
                mapped_node_name="finish",
                mapped_node_output_name=_RESULT,
            )
        ],
    )
