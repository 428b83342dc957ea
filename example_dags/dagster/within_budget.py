"""Copies each night's events while the forecast of the month is within the budget.

Forecast and plan use the learned grid: rates that earlier transfers have measured.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from skyplane_orchestration import Location, TransferJob, planner
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    skyplane_assets,
)
from skyplane_orchestration.model.identity import RunIdentity

BUDGET_USD = float(os.environ.get("SKYPLANE_MONTHLY_BUDGET_USD", "200"))
NIGHTS = TransferJob(
    Location("s3://example-sydney/nights/", "aws:ap-southeast-2"),
    Location("s3://example-paris/nights/", "aws:eu-west-3"),
    conflict="replace-if-different",
)


def forecast(skyplane: SkyplaneResource, month: str) -> planner.Forecast:
    """The bill of a month, with the learned rates of the resource."""
    identity = RunIdentity(skyplane.deployment, "nights_paris", "forecast")
    job = planner.ForecastJob(
        "nights",
        NIGHTS.source.region,
        NIGHTS.destination.region,
        volume_gb=40.0,
        objects=2000,
        schedule="daily",
        since="2026-11",
        growth_per_month=0.03,
    )
    return planner.forecast(skyplane.client(identity).grid, [job], month)


@skyplane_assets(jobs={"nights_paris": NIGHTS}, retry_policy=dg.RetryPolicy(max_retries=2))
def nights(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    found = forecast(skyplane, f"{datetime.now(UTC):%Y-%m}")
    if found.usd > BUDGET_USD:
        text = f"{found.month} costs {found.usd:.2f} USD, over {BUDGET_USD}"
        raise dg.Failure(text, allow_retries=False)
    yield from skyplane.run(context=context)


#: A directory, or a prefix of a bucket.
LEARNED_GRID = os.environ.get("SKYPLANE_LEARNED_GRID", "s3://example-paris/rates/")

defs = dg.Definitions(
    assets=[nights],
    resources={"skyplane": SkyplaneResource(deployment="example", learned_grid=LEARNED_GRID)},
    schedules=[
        dg.ScheduleDefinition(
            "nights_at_one", target=nights, cron_schedule="0 1 * * *", execution_timezone="UTC"
        )
    ],
    sensors=[build_skyplane_cleanup_sensor()],
)
