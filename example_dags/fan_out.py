"""Copies a model to three regions over one fleet: what they share of the way is sent once.

A failed copy does not stop the other two. The task then fails, and a retry copies what is missing.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import SkyplaneTransferOperator

#: Stores that know their regions need only URLs.
DESTINATIONS = [
    {"url": "s3://example-paris/models/", "region": "aws:eu-west-3"},
    {"url": "s3://example-tokyo/models/", "region": "aws:ap-northeast-1"},
    {"url": "s3://example-oregon/models/", "region": "aws:us-west-2"},
]

with DAG(
    dag_id="fan_out",
    description="Copies one prefix to three regions",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    SkyplaneTransferOperator(
        task_id="replicate",
        source_url="s3://example-sydney/models/",
        source_region="aws:ap-southeast-2",
        destinations=DESTINATIONS,
        conflict="replace-if-different",
        retries=2,
        retry_delay=timedelta(minutes=1),
    )
