"""Copies each hour's export when its `_SUCCESS` object arrives.

The sensor comes from the amazon provider. With `deferrable=True` it holds no slot while it waits.
For other clouds: `GCSObjectExistenceSensor` of the google provider, `WasbBlobSensor` of the
microsoft.azure provider.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from skyplane_orchestration.operators import skyplane_transfer_group

HOUR = "{{ data_interval_start.strftime('%Y-%m-%d/%H') }}"

with DAG(
    dag_id="on_arrival",
    description="Copies an export when it is complete",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    arrived = S3KeySensor(
        task_id="arrived",
        bucket_key=f"s3://example-sydney/clicks/{HOUR}/_SUCCESS",
        deferrable=True,
        timeout=timedelta(hours=2).total_seconds(),
    )
    arrived >> skyplane_transfer_group(
        "copy",
        source_url=f"s3://example-sydney/clicks/{HOUR}/",
        source_region="aws:ap-southeast-2",
        destination_url=f"s3://example-paris/clicks/{HOUR}/",
        destination_region="aws:eu-west-3",
        conflict="replace-if-different",
        retries=2,
    )
