"""Sydney to Paris, faster than the direct path: a planned overlay as one Dagster asset.

One c6in.xlarge in each city sends about 2.5 Gbit/s on the direct path. This example needs 4.1
Gbit/s with one instance per region, so the plan uses other regions too.
With the `local` provisioner the gateways are processes on the machine that runs the op.

    dagster dev -f sydney_to_paris.py

To use your own buckets, set these variables: SKYPLANE_DEMO_SOURCE_URL,
SKYPLANE_DEMO_DESTINATION_URL, and for S3-compatible servers SKYPLANE_DEMO_SOURCE_ENDPOINT,
SKYPLANE_DEMO_DESTINATION_ENDPOINT. `make demo-dagster` sets them.
"""

from __future__ import annotations

import os

import dagster as dg

from skyplane_orchestration import Location, MinimizeCost
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    build_skyplane_sweep_sensor,
    build_skyplane_transfer_asset,
)
from skyplane_orchestration.model.job import Limits

SOURCE = Location(
    os.environ.get("SKYPLANE_DEMO_SOURCE_URL", "s3://example-sydney/imagenet/"),
    region="aws:ap-southeast-2",
    endpoint_url=os.environ.get("SKYPLANE_DEMO_SOURCE_ENDPOINT", ""),
)
DESTINATION = Location(
    os.environ.get("SKYPLANE_DEMO_DESTINATION_URL", "s3://example-paris/imagenet/"),
    region="aws:eu-west-3",
    endpoint_url=os.environ.get("SKYPLANE_DEMO_DESTINATION_ENDPOINT", ""),
)

#: External data that no asset of this code location makes.
imagenet_sydney = dg.AssetSpec("imagenet_sydney", metadata={"dagster/uri": SOURCE.url})

imagenet_paris = build_skyplane_transfer_asset(
    "imagenet_paris",
    source=SOURCE,
    destination=DESTINATION,
    objective=MinimizeCost(min_throughput_gbps=4.1),
    limits=Limits(instance_limit=1, chunk_mib=8),
    deps=[imagenet_sydney],
    group_name="replication",
    description="The training images, where the European cluster reads them.",
    retry_policy=dg.RetryPolicy(max_retries=2, delay=10),
)

defs = dg.Definitions(
    assets=[imagenet_sydney, imagenet_paris],
    # If ops run on more than one machine, add their common secret:
    # fleet_secret=dg.EnvVar("SKYPLANE_FLEET_SECRET").
    resources={"skyplane": SkyplaneResource(deployment="example")},
    sensors=[build_skyplane_cleanup_sensor(), build_skyplane_sweep_sensor()],
)
