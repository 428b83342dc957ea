"""Sydney to Paris, faster than the direct path: a planned overlay as tasks of a DAG.

One c7gn.large in each city sends about 2.5 Gbit/s on the direct path. This example needs 4.1
Gbit/s with one instance per region, so the plan uses other regions too.
With the `local` provisioner the gateways are processes on the worker.

To use your own buckets, set these variables in the environment of Airflow:
SKYPLANE_DEMO_SOURCE_URL, SKYPLANE_DEMO_DESTINATION_URL, and for S3-compatible servers
SKYPLANE_DEMO_SOURCE_ENDPOINT, SKYPLANE_DEMO_DESTINATION_ENDPOINT. `make demo` sets them.
"""

from __future__ import annotations

import os

from airflow.providers.common.compat.sdk import DAG, Asset

from skyplane_orchestration.operators import skyplane_transfer_group

SOURCE = os.environ.get("SKYPLANE_DEMO_SOURCE_URL", "s3://example-sydney/imagenet/")
DESTINATION = os.environ.get("SKYPLANE_DEMO_DESTINATION_URL", "s3://example-paris/imagenet/")

with DAG(
    dag_id="sydney_to_paris",
    description="Copies a data set between two regions over a planned overlay",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
    params={"min_throughput_gbps": 4.1},
) as dag:
    skyplane_transfer_group(
        "imagenet",
        source_url=SOURCE,
        source_region="aws:ap-southeast-2",
        source_endpoint=os.environ.get("SKYPLANE_DEMO_SOURCE_ENDPOINT", ""),
        destination_url=DESTINATION,
        destination_region="aws:eu-west-3",
        destination_endpoint=os.environ.get("SKYPLANE_DEMO_DESTINATION_ENDPOINT", ""),
        min_throughput_gbps="{{ params.min_throughput_gbps }}",
        instance_limit=1,
        chunk_mib=8,
        outlets=[Asset(DESTINATION)],
    )
