"""Copies each day's partition to another region every day, for at most 0.10 USD per GB.

With `replace-if-different`, a repeated or backfilled run copies only missing and changed objects.
`_SUCCESS` is written last, so a reader that waits for it always sees the whole day.
"""

import os

import dagster as dg

from skyplane_orchestration import Location, MaximizeThroughput
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    build_skyplane_sweep_sensor,
    build_skyplane_transfer_asset,
)

SOURCE = os.environ.get("SKYPLANE_DAILY_SOURCE", "s3://example-sydney/events")
DESTINATION = os.environ.get("SKYPLANE_DAILY_DESTINATION", "s3://example-paris/events")

events_paris = build_skyplane_transfer_asset(
    "events_paris",
    source=Location(f"{SOURCE}/dt={{partition_key}}/", "aws:ap-southeast-2"),
    destination=Location(f"{DESTINATION}/dt={{partition_key}}/", "aws:eu-west-3"),
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    objective=MaximizeThroughput(max_usd_per_gb=0.10),
    conflict="replace-if-different",
    publish_last=("*/manifest.json",),
    manifest=f"{DESTINATION}/_manifests/{{partition_key}}.parquet",
    retry_policy=dg.RetryPolicy(max_retries=2, delay=300),
    pool="skyplane",
)

replication = dg.define_asset_job("daily_replication", selection=[events_paris])

defs = dg.Definitions(
    assets=[events_paris],
    jobs=[replication],
    resources={"skyplane": SkyplaneResource(deployment="example")},
    # A run at midnight covers the day before it.
    schedules=[dg.build_schedule_from_partitioned_job(replication)],
    sensors=[build_skyplane_cleanup_sensor(), build_skyplane_sweep_sensor()],
)
