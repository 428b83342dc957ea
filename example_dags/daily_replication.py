"""Copies each day's partition to another region every day.

With `replace-if-different`, a cleared or backfilled run copies only missing and changed objects.
`_SUCCESS` is written last, so a reader that waits for it always sees the whole day.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from skyplane_orchestration.operators import SkyplaneSweepOperator, skyplane_transfer_group

SOURCE = os.environ.get("SKYPLANE_DAILY_SOURCE", "s3://example-sydney/events")
DESTINATION = os.environ.get("SKYPLANE_DAILY_DESTINATION", "s3://example-paris/events")
DAY = "dt={{ data_interval_start | ds }}/"

with DAG(
    dag_id="daily_replication",
    description="Replicates one day's prefix per run",
    # A run covers the day before it, in Airflow 2 and 3.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["skyplane", "example"],
) as dag:
    replication = skyplane_transfer_group(
        "replicate",
        source_url=f"{SOURCE}/{DAY}",
        source_region="aws:ap-southeast-2",
        destination_url=f"{DESTINATION}/{DAY}",
        destination_region="aws:eu-west-3",
        max_usd_per_gb=0.10,
        conflict="replace-if-different",
        publish_last=["*/manifest.json"],
        manifest=f"{DESTINATION}/_manifests/{{{{ data_interval_start | ds }}}}.parquet",
        retries=2,
        retry_delay=timedelta(minutes=5),
    )
    replication >> SkyplaneSweepOperator(task_id="sweep_orphans")
