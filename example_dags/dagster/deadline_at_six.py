"""Copies the night's export before 06:00, at the least price that meets this deadline.

A run that starts late gets a faster and dearer plan. `max_job_usd` limits what that may cost.
A run for which no plan is fast enough fails before anything costs money.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from skyplane_orchestration import Deadline, Location, TransferJob
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    skyplane_assets,
)
from skyplane_orchestration.model.job import Policy

#: Time of the day in UTC at which the export must be there.
DONE_BY = "06:00"

#: A margin that the deadline must not use up.
RESERVE_S = 600

EXPORT = TransferJob(
    Location("s3://example-sydney/export/", "aws:ap-southeast-2"),
    Location("s3://example-paris/export/", "aws:eu-west-3"),
    policy=Policy(max_job_usd=50),
    conflict="replace-if-different",
)


def seconds_until(clock_time: str, now: datetime | None = None) -> float:
    """Seconds until this time of the day in UTC, today or tomorrow, without the reserve."""
    now = now or datetime.now(UTC)
    hour, minute = map(int, clock_time.split(":"))
    end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if end <= now:
        end += timedelta(days=1)
    return max((end - now).total_seconds() - RESERVE_S, 1.0)


@skyplane_assets(jobs={"export_paris": EXPORT}, retry_policy=dg.RetryPolicy(max_retries=2))
def export(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    job = replace(EXPORT, objective=Deadline(seconds_until(DONE_BY)))
    yield from skyplane.run(context=context, job=job)


defs = dg.Definitions(
    assets=[export],
    resources={"skyplane": SkyplaneResource(deployment="example")},
    schedules=[
        dg.ScheduleDefinition(
            "export_at_two", target=export, cron_schedule="0 2 * * *", execution_timezone="UTC"
        )
    ],
    sensors=[build_skyplane_cleanup_sensor()],
)
