"""The asset check of a transfer: whether all objects were copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import dagster as dg

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.result import TransferResult

ALL_OBJECTS_COPIED: Final = "all_objects_copied"

#: The first is the sum of the others, in the check and in the metadata of the asset.
COUNTS: Final = ("objects", "copied", "skipped", "failed", "unfinished")


def check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        ALL_OBJECTS_COPIED,
        asset=key,
        description="No object of the source has failed, and none is unfinished.",
    )


def require_materialized(context: dg.AssetExecutionContext) -> None:
    """Raise ConfigurationInvalid if a check is selected without its asset.

    The check counts what a copy did, so it would copy, and no materialization would say so.
    """
    checked = {check.asset_key for check in context.selected_asset_check_keys}
    alone = sorted(key.to_user_string() for key in checked - context.selected_asset_keys)
    if alone:
        raise ConfigurationInvalid(
            f"the check {ALL_OBJECTS_COPIED} counts what a copy did, so it cannot run alone;"
            f" materialize {', '.join(alone)}"
        )


Checked = TypeVar("Checked", dg.AssetCheckResult, dg.AssetCheckEvaluation)


def checks_of(
    kind: Callable[..., Checked],
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    results: Iterable[TransferResult],
    *,
    allow_failed: bool = False,
) -> Iterator[Checked]:
    """The outcome of the check of an asset; none if the run has not selected it.

    It also says where achieved and promised rates have drifted apart, which fails nothing.

    Args:
        kind: `AssetCheckEvaluation` in an op that does not end with the check.
        results: of all partitions of the run; their counts are added.
        allow_failed: failed objects are only a warning.
    """
    if dg.AssetCheckKey(key, ALL_OBJECTS_COPIED) not in context.selected_asset_check_keys:
        return
    each = list(results)
    counts = {name: sum(getattr(result, name) for result in each) for name in COUNTS}
    lacking = counts["failed"] + counts["unfinished"]
    said = [result.drift_text for result in each if result.has_drifted]
    if lacking:
        said.insert(
            0, f"{counted(lacking, 'object')} of {counts['objects']} not at the destination"
        )
    drifts = [result.drift for result in each if result.drift is not None]
    metadata: dict[str, dg.MetadataValue[Any]] = {
        f"skyplane/{one}": dg.MetadataValue.int(count) for one, count in counts.items()
    }
    if drifts:
        metadata["skyplane/drift"] = dg.MetadataValue.float(max(drifts, key=abs))
    yield kind(
        asset_key=key,
        check_name=ALL_OBJECTS_COPIED,
        passed=lacking == 0,
        severity=dg.AssetCheckSeverity.WARN if allow_failed else dg.AssetCheckSeverity.ERROR,
        metadata=metadata,
        description="; ".join(said) or None,
    )
