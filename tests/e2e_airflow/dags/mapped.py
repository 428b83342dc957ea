"""Fifty mapped transfers on one fleet, which wait in the triggerer."""

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

PLACES: dict[str, Any] = {
    "source_region": "aws:ap-southeast-2",
    "source_endpoint": os.environ["E2E_SOURCE"],
    "destination_region": "aws:eu-west-3",
    "destination_endpoint": os.environ["E2E_MAPPED"],
}
TABLES = [
    {
        "source_url": f"s3://source/tables/{number:02}/",
        "destination_url": f"s3://mapped/copy/{number:02}/",
    }
    for number in range(50)
]

with DAG(dag_id="mapped", schedule=None, catchup=False, tags=["skyplane"]) as dag:
    plan = SkyplanePlanOperator(
        task_id="plan",
        fleet_name="tables",
        source_url="s3://source/tables/",
        destination_url="s3://mapped/copy/",
        instance_limit=1,
        **PLACES,
    )
    provision = SkyplaneProvisionOperator(
        task_id="provision", fleet_name="tables", plan=plan.output
    )
    transfers = SkyplaneTransferOperator.partial(
        task_id="transfer",
        fleet_name="tables",
        fleet=provision.output,
        map_index_template="{{ task.source_url }} to {{ task.destination_url }}",
        deferrable=True,
        defer_after_s=0,
        **PLACES,
    ).expand_kwargs(TABLES)
    teardown = SkyplaneTeardownOperator(
        task_id="teardown", fleet_name="tables", fleet=provision.output
    )
    transfers >> teardown.as_teardown(setups=provision)
