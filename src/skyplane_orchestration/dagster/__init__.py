"""Transfers as Dagster assets.

    from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_transfer_asset

This import loads Dagster. Cloud SDKs and the solver are loaded in a run.
"""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import dagster  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.dagster", "dagster") from None

from skyplane_orchestration.dagster.assets import (
    AssetOptions,
    JobOptions,
    build_skyplane_transfer_asset,
    build_skyplane_transfer_assets,
)
from skyplane_orchestration.dagster.cleanup import build_skyplane_cleanup_sensor
from skyplane_orchestration.dagster.resources import SkyplaneResource
from skyplane_orchestration.dagster.sensors import build_skyplane_sweep_sensor
from skyplane_orchestration.dagster.source_assets import build_skyplane_source_asset

__all__ = [
    "AssetOptions",
    "JobOptions",
    "SkyplaneResource",
    "build_skyplane_cleanup_sensor",
    "build_skyplane_source_asset",
    "build_skyplane_sweep_sensor",
    "build_skyplane_transfer_asset",
    "build_skyplane_transfer_assets",
]
