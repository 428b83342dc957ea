"""DAGs whose tasks are killed by `test_airflow_sigkill.py`: a folder goes to an S3 server.

The ends have the region tags of a cloud, so that each has gateways of its own; all run on
this machine.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import skyplane_transfer_group


def job_of(dag_id: str) -> dict[str, Any]:
    """What a DAG copies: its id names the bucket and, in the environment, the server's address."""
    return {
        "source_url": f"file://{os.environ['KILLED_SOURCE']}/",
        "source_region": "aws:ap-southeast-2",
        "destination_url": f"s3://{dag_id.replace('_', '-')}/copy/",
        "destination_region": "aws:eu-west-3",
        "destination_endpoint": os.environ[f"{dag_id.upper()}_ENDPOINT"],
        "instance_limit": 1,
        "chunk_mib": 5,
    }


def group_dag(dag_id: str, retries: dict[str, int]) -> DAG:
    """A DAG of one group.

    Args:
        dag_id: see `job_of`.
        retries: task -> tries after the first.
    """
    with DAG(dag_id=dag_id, schedule=None, catchup=False) as dag:
        skyplane_transfer_group(
            "move",
            retry_delay=timedelta(seconds=0),
            **job_of(dag_id),
        )
        for task, count in retries.items():
            dag.get_task(f"move.{task}").retries = count
    return dag


killed_transfer = group_dag("killed_transfer", {"transfer": 2})
killed_around = group_dag("killed_around", {"provision": 1, "teardown": 1})
frozen_transfer = group_dag("frozen_transfer", {"transfer": 2})
