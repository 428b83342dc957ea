"""Copies the night's export before 06:00, at the least price that meets this deadline.

A run that starts late gets a faster and dearer plan. `max_job_usd` limits what that may cost.
A run for which no plan is fast enough fails in its task `plan`, before anything costs money.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import skyplane_transfer_group

#: Time of the day in UTC at which the export must be there.
DONE_BY = os.environ.get("SKYPLANE_EXPORT_DONE_BY", "06:00")

#: Time of the task `provision` and a margin, which the deadline must not use up.
RESERVE_S = 600


def seconds_until(clock_time: str, now: datetime | None = None) -> float:
    """Seconds until this time of the day in UTC, today or tomorrow, without the reserve."""
    now = now or datetime.now(UTC)
    hour, minute = map(int, clock_time.split(":"))
    end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if end <= now:
        end += timedelta(days=1)
    return max((end - now).total_seconds() - RESERVE_S, 1.0)


with DAG(
    dag_id="deadline_at_six",
    description="Copies an export before 06:00 UTC",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    user_defined_macros={"seconds_until": seconds_until},
    tags=["skyplane", "example"],
) as dag:
    skyplane_transfer_group(
        "export",
        source_url="s3://example-sydney/export/",
        source_region="aws:ap-southeast-2",
        destination_url="s3://example-paris/export/",
        destination_region="aws:eu-west-3",
        deadline_s="{{ seconds_until('" + DONE_BY + "') }}",
        max_job_usd=50,
        conflict="replace-if-different",
        retries=2,
    )
