"""`build_skyplane_manifest_check`: whether a place still holds what its manifest says."""

from __future__ import annotations

import dagster as dg

from skyplane_orchestration.dagster.assets import key_of
from skyplane_orchestration.dagster.ops import as_failures
from skyplane_orchestration.dagster.placeholders import unpartitioned
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location


@checks_arguments
def build_skyplane_manifest_check(
    asset: dg.AssetKey | dg.AssetsDefinition | dg.AssetSpec | str,
    location: Location | str,
    *,
    name: str = "manifest_holds",
    manifest_at: str = "auto",
    public_key: str | None = None,
    blocking: bool = False,
    resource_key: str = "skyplane",
) -> dg.AssetChecksDefinition:
    """Make a check of an asset: each object that the manifest of a place has is still there.

    It lists the place once, and reads no object. It fails for a row whose object is gone or is
    another version, and for a damaged manifest. Objects without a row are only counted.

    Args:
        location: the folder that runs copy to: a URL, or a `Location`.
        manifest_at: that of the runs, for a manifest that lies apart.
        public_key: Ed25519 key that has to have signed the manifest: a PEM file, or `env:NAME`.
        blocking: assets downstream of it wait for the check.
        resource_key: key of the `SkyplaneResource`.

    Raises ConfigurationInvalid for an invalid location.
    """
    place = unpartitioned("location", location)
    key = key_of(asset)

    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource = getattr(context.resources, resource_key)
        identity = RunIdentity(resource.deployment, key.to_user_string(), context.run.run_id)
        with as_failures():
            manifest = resource.client(identity).manifest(place, manifest_at=manifest_at)
            report = manifest.verify(public_key)
        return dg.AssetCheckResult(
            passed=report.is_equal,
            description=report.summary if report.is_equal else report.failure(shown=5),
            metadata={
                "dagster/uri": place.url,
                "skyplane/rows": report.rows,
                "skyplane/findings": len(report.findings),
                "skyplane/without_row": len(report.unknown),
                "skyplane/manifest": dg.MetadataValue.json(report.to_dict()),
            },
        )

    # Dagster cannot resolve a postponed annotation.
    hints = {"context": dg.AssetCheckExecutionContext, "return": dg.AssetCheckResult}
    check.__annotations__ = hints
    return dg.asset_check(
        asset=key,
        name=name,
        description=f"The objects at {place.url} are those of its manifest.",
        blocking=blocking,
        required_resource_keys={resource_key},
    )(check)
