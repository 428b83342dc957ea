"""Transfers that end within a second or two: some in their slot, others while they are deferred."""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTeardownOperator,
    SkyplaneTransferOperator,
)

COPIES = 10
PLACES: dict[str, Any] = {
    "source_url": "s3://source/data/",
    "source_region": "aws:ap-southeast-2",
    "source_endpoint": os.environ["E2E_SOURCE"],
    "destination_region": "aws:eu-west-3",
    "destination_endpoint": os.environ["E2E_SOURCE"],
    "fleet_name": "short",
}

with DAG(dag_id="short", schedule=None, catchup=False, tags=["skyplane"]) as dag:
    plan = SkyplanePlanOperator(
        task_id="plan", destination_url="s3://short/", instance_limit=1, **PLACES
    )
    provision = SkyplaneProvisionOperator(task_id="provision", fleet_name="short", plan=plan.output)
    teardown = SkyplaneTeardownOperator(
        task_id="teardown", fleet_name="short", fleet=provision.output
    ).as_teardown(setups=provision)
    for name, more in (("in_slot", {}), ("deferred", {"defer_after_s": 0})):
        transfers = SkyplaneTransferOperator.partial(
            task_id=name,
            fleet=provision.output,
            deferrable=True,
            retries=0,
            map_index_template="{{ task.destination_url }}",
            **PLACES,
            **more,
        ).expand(destination_url=[f"s3://short/{name}/{number}/" for number in range(COPIES)])
        transfers >> teardown
