"""Copies a model to three regions side by side, each over its own plan and fleet.

The destinations do not wait for each other: a failed copy does not stop the other two.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import skyplane_transfer_group

DESTINATIONS = {
    "paris": ("s3://example-paris/models/", "aws:eu-west-3"),
    "tokyo": ("s3://example-tokyo/models/", "aws:ap-northeast-1"),
    "oregon": ("s3://example-oregon/models/", "aws:us-west-2"),
}

with DAG(
    dag_id="fan_out",
    description="Copies one prefix to three regions",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    for city, (url, region) in DESTINATIONS.items():
        skyplane_transfer_group(
            f"to_{city}",
            source_url="s3://example-sydney/models/",
            source_region="aws:ap-southeast-2",
            destination_url=url,
            destination_region=region,
            conflict="replace-if-different",
            retries=2,
            retry_delay=timedelta(minutes=1),
        )
