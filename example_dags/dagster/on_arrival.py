"""Copies each hour's export when its `_SUCCESS` object arrives.

The sensor asks S3 for the object of each hour of the last day. Dagster launches one run for each
run key, so no hour is copied twice.
"""

from collections.abc import Iterator
from typing import Any

import boto3
import dagster as dg

from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    skyplane_assets,
)

HOURS = dg.HourlyPartitionsDefinition("2026-01-01T00", fmt="%Y-%m-%dT%H")
#: The sensor looks at so many hours.
WATCHED = 24

CLICKS = TransferJob(
    Location("s3://example-sydney/clicks/{partition_key}/", "aws:ap-southeast-2"),
    Location("s3://example-paris/clicks/{partition_key}/", "aws:eu-west-3"),
    conflict="replace-if-different",
)


@skyplane_assets(
    jobs={"clicks_paris": CLICKS},
    partitions_def=HOURS,
    retry_policy=dg.RetryPolicy(max_retries=2),
)
def clicks(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    yield from skyplane.run(context=context)


@dg.sensor(target=clicks, minimum_interval_seconds=60)
def arrived(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
    s3 = boto3.client("s3", region_name="ap-southeast-2")
    for hour in HOURS.get_partition_keys()[-WATCHED:]:
        marker = f"clicks/{hour}/_SUCCESS"
        found = s3.list_objects_v2(Bucket="example-sydney", Prefix=marker, MaxKeys=1)
        if found["KeyCount"]:
            yield dg.RunRequest(run_key=hour, partition_key=hour)


defs = dg.Definitions(
    assets=[clicks],
    resources={"skyplane": SkyplaneResource(deployment="example")},
    sensors=[arrived, build_skyplane_cleanup_sensor()],
)
