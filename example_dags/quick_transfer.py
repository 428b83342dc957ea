"""The shortest DAG: one task copies a prefix to a bucket of another region.

The task plans, starts gateways, copies, and ends the gateways. Small transfers need no gateways.
`skyplane_transfer_group` makes a task of each step; see `sydney_to_paris`.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import SkyplaneTransferOperator

with DAG(
    dag_id="quick_transfer",
    description="Copies a prefix in one task",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    SkyplaneTransferOperator(
        task_id="copy",
        source_url="s3://example-sydney/orders/",
        source_region="aws:ap-southeast-2",
        destination_url="s3://example-paris/orders/",
        destination_region="aws:eu-west-3",
        retries=2,
    )
