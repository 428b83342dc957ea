"""`build_skyplane_source_asset`: a place as an asset that Dagster observes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from skyplane_orchestration.dagster.ops import failure_of, op_name
from skyplane_orchestration.dagster.placeholders import filled, unpartitioned
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location


@checks_arguments
def build_skyplane_source_asset(
    name: str,
    location: Location | str,
    *,
    recursive: bool = True,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    key_prefix: Sequence[str] = (),
    group_name: str | None = None,
    description: str | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    resource_key: str = "skyplane",
) -> dg.AssetsDefinition:
    """Make an observable source asset: an observation lists the place, and reads no object.

    Its data version is a digest of keys, sizes and ETags: that of a transfer asset which copies
    the same objects. Its metadata are `dagster/uri`, `skyplane/objects` and `skyplane/bytes`.

    Args:
        location: a URL, or a `Location` with region, endpoint and credentials.
        recursive, include, exclude: as in `TransferJob`.
        automation_condition: when to observe, such as `AutomationCondition.on_cron("@hourly")`.
        resource_key: key of the `SkyplaneResource`.

    Raises ConfigurationInvalid for an invalid location.
    """
    place = unpartitioned("location", location)
    globs = {
        name: [filled(name, glob, {}) for glob in each]
        for name, each in (("include", include), ("exclude", exclude))
    }
    key = dg.AssetKey([*key_prefix, name])
    spec = dg.AssetSpec(
        key,
        group_name=group_name,
        description=description,
        automation_condition=automation_condition,
        owners=list(owners),
        tags=tags,
        kinds={place.kind},
        metadata={"dagster/uri": place.url, **(metadata or {})},
    )

    def observe(context: dg.AssetExecutionContext) -> Iterator[dg.ObserveResult]:
        resource = getattr(context.resources, resource_key)
        identity = RunIdentity(resource.deployment, key.to_user_string(), context.run.run_id)
        try:
            found = resource.client(identity).source_version(place, recursive=recursive, **globs)
        except SkyplaneError as error:
            raise failure_of(error) from error
        yield dg.ObserveResult(
            asset_key=key,
            data_version=dg.DataVersion(found.digest),
            metadata={
                "dagster/uri": place.url,
                "skyplane/objects": found.objects,
                "skyplane/bytes": found.size_bytes,
            },
        )

    # Dagster cannot resolve a postponed annotation.
    observe.__annotations__ = {"context": dg.AssetExecutionContext}
    with warnings.catch_warnings():
        # All that Dagster has for observations is in beta in 1.11 to 1.13.
        warnings.simplefilter("ignore", dg.BetaWarning)
        made: dg.AssetsDefinition = dg.multi_observable_source_asset(
            specs=[spec], name=op_name(key, "observe"), required_resource_keys={resource_key}
        )(observe)
    return made
