"""Transfers as Dagster assets.

    from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_transfer_asset

This import loads Dagster. Cloud SDKs and the solver are loaded in a run.
"""

from __future__ import annotations

from skyplane_orchestration import __version__
from skyplane_orchestration.errors import MissingExtra

try:
    from dagster_shared.libraries import DagsterLibraryRegistry
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.dagster", "dagster") from None

from skyplane_orchestration.dagster.assets import (
    AssetOptions,
    build_skyplane_transfer_asset,
    build_skyplane_transfer_assets,
)
from skyplane_orchestration.dagster.cleanup import build_skyplane_cleanup_sensor
from skyplane_orchestration.dagster.components import SkyplaneTransferComponent
from skyplane_orchestration.dagster.decorator import skyplane_assets
from skyplane_orchestration.dagster.job_arguments import JobArguments
from skyplane_orchestration.dagster.manifest_check import build_skyplane_manifest_check
from skyplane_orchestration.dagster.resources import SkyplaneResource
from skyplane_orchestration.dagster.sensors import build_skyplane_sweep_sensor
from skyplane_orchestration.dagster.source_assets import build_skyplane_source_asset
from skyplane_orchestration.dagster.translator import (
    DagsterSkyplaneTranslator,
    SkyplaneTranslatorData,
)

__all__ = [
    "AssetOptions",
    "DagsterSkyplaneTranslator",
    "JobArguments",
    "SkyplaneResource",
    "SkyplaneTransferComponent",
    "SkyplaneTranslatorData",
    "build_skyplane_cleanup_sensor",
    "build_skyplane_manifest_check",
    "build_skyplane_source_asset",
    "build_skyplane_sweep_sensor",
    "build_skyplane_transfer_asset",
    "build_skyplane_transfer_assets",
    "skyplane_assets",
]

DagsterLibraryRegistry.register("skyplane-orchestration", __version__, is_dagster_package=False)
