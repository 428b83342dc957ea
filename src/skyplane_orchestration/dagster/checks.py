"""The asset check of a transfer: whether all objects were copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import dagster as dg

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.result import TransferResult

ALL_OBJECTS_COPIED: Final = "all_objects_copied"

#: The first is the sum of the others, in the check and in the metadata of the asset.
COUNTS: Final = ("objects", "copied", "skipped", "failed", "unfinished")


def check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check of an asset."""
    return dg.AssetCheckSpec(
        ALL_OBJECTS_COPIED,
        asset=key,
        description="No object of the source has failed, and none is unfinished.",
    )


def is_checked(context: dg.AssetExecutionContext, key: dg.AssetKey) -> bool:
    """Whether the run has selected the check of an asset."""
    return dg.AssetCheckKey(key, ALL_OBJECTS_COPIED) in context.selected_asset_check_keys


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


def check_facts(results: Iterable[TransferResult], *, allow_failed: bool) -> dict[str, Any]:
    """The arguments that `AssetCheckResult` and `AssetCheckEvaluation` have in common.

    Args:
        results: of all partitions of the run; their counts are added.
        allow_failed: failed objects are only a warning.
    """
    each = list(results)
    counts = {name: sum(getattr(result, name) for result in each) for name in COUNTS}
    lacking = counts["failed"] + counts["unfinished"]
    severity = dg.AssetCheckSeverity.WARN if allow_failed else dg.AssetCheckSeverity.ERROR
    facts = {f"skyplane/{name}": dg.MetadataValue.int(count) for name, count in counts.items()}
    said = f"{counted(lacking, 'object')} of {counts['objects']} not at the destination"
    return {
        "passed": lacking == 0,
        "severity": severity,
        "metadata": facts,
        "description": said if lacking else None,
    }
