"""`build_skyplane_transfer_asset`: one transfer as an asset with one op per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack

import dagster as dg

from skyplane_gateway.config import ConflictRule, Verification
from skyplane_orchestration.dagster.ops import (
    AssetTransfer,
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

#: Prefix of the tags in which Dagster stores the kinds of an asset.
_KIND_TAG: Final = "dagster/kind/"

_RESULT: Final = "result"

T = TypeVar("T")


class JobOptions(TypedDict, total=False):
    """The fields of `TransferJob` other than source and destination."""

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
    """Make an asset whose materialization copies `source` to `destination`.

    Its ops are plan, provision, transfer, teardown and finish. If an op fails, a hook ends the
    gateways. If a run is terminated, the interrupted op ends them. If no process can do this,
    the sensor of `build_skyplane_cleanup_sensor` ends them; without it they end with their
    lease. A re-execution of a run resumes its transfer.

    Args:
        source, destination: URLs, or `Location`s with region, endpoint and credentials.
            `{partition_key}` in a URL is replaced by the key of the partition.
        deps: upstream assets.
        retry_policy: of every op; a retry joins the running transfer.
        manifest: path or URL for the list of all objects (Parquet).
        resource_key: key of the `SkyplaneResource`.
        job: the other fields of `TransferJob`, such as `objective`.

    Raises ConfigurationInvalid for an invalid job.
    """
    key = dg.AssetKey([*key_prefix, name])
    asset = AssetTransfer(
        key=key,
        job=TransferJob(source=_location(source), destination=_location(destination), **job),
        manifest=manifest,
        resource_key=resource_key,
        retry_policy=retry_policy,
    )
    destination = asset.job.destination
    kinds = {f"{_KIND_TAG}skyplane": "", f"{_KIND_TAG}{destination.kind}": ""}
    upstream = {f"dep_{number}": _key_of(dep) for number, dep in enumerate(deps)}
    return dg.AssetsDefinition.from_graph(
        _graph(asset, tuple(upstream), description),
        keys_by_input_name=upstream,
        keys_by_output_name={_RESULT: key},
        partitions_def=partitions_def,
        group_name=group_name,
        descriptions_by_output_name=_of_result(description),
        metadata_by_output_name=_of_result({"dagster/uri": destination.url, **(metadata or {})}),
        tags_by_output_name=_of_result({**kinds, **(tags or {})}),
        owners_by_output_name=_of_result(list(owners)),
        automation_conditions_by_output_name=_of_result(automation_condition),
    )


def _of_result(value: T | None) -> dict[str, T] | None:
    """A value of the asset as a dict by output name; None for no value."""
    return {_RESULT: value} if value else None


def _location(place: Location | str) -> Location:
    return place if isinstance(place, Location) else Location(place)


def _key_of(dep: dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str) -> dg.AssetKey:
    if isinstance(dep, dg.AssetsDefinition | dg.AssetSpec):
        return dep.key
    return dep if isinstance(dep, dg.AssetKey) else dg.AssetKey.from_user_string(dep)


def _graph(
    asset: AssetTransfer, deps: tuple[str, ...], description: str | None
) -> dg.GraphDefinition:
    """The five ops and their dependencies; `plan` waits for the upstream assets."""
    hooks = {cleanup_hook(asset)}
    ops = {
        "plan": plan_op(asset, {dep: dg.In(dg.Nothing) for dep in deps}),
        "provision": provision_op(asset),
        "transfer": transfer_op(asset),
        "teardown": teardown_op(asset),
        "finish": finish_op(asset),
    }
    plan, fleet = dg.DependencyDefinition("plan"), dg.DependencyDefinition("provision")
    outcome = dg.DependencyDefinition("transfer")
    return dg.GraphDefinition(
        name="__".join(asset.key.path).replace("-", "_"),
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
