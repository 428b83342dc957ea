"""DAGs that `make e2e-airflow` runs: a prefix of one S3 server goes to another.

Both ends have the region tags of a cloud, so each has gateways of its own; all run on this machine.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Asset

from skyplane_orchestration.operators import skyplane_transfer_group

#: DAG id -> whether the transfer waits in the triggerer.
DAGS = {
    "waits_in_worker": False,
    "waits_in_triggerer": True,
    "marked_failed": True,
    "timed_out": False,
}
#: The store holds the transfer for longer.
LIMITS = {"timed_out": {"transfer": {"execution_timeout": timedelta(seconds=60)}}}


def replication(dag_id: str, deferrable: bool) -> DAG:
    """A DAG of one group; `E2E_<dag id>` is the endpoint of its destination."""
    bucket = dag_id.replace("_", "-")
    with DAG(dag_id=dag_id, schedule=None, catchup=False, tags=["skyplane"]) as dag:
        skyplane_transfer_group(
            "move",
            source_url="s3://source/data/",
            source_region="aws:ap-southeast-2",
            source_endpoint=os.environ["E2E_SOURCE"],
            destination_url=f"s3://{bucket}/copy/",
            destination_region="aws:eu-west-3",
            destination_endpoint=os.environ[f"E2E_{dag_id.upper()}"],
            instance_limit=1,
            chunk_mib=5,
            outlets=[Asset(f"s3://{bucket}/copy/")],
            deferrable=deferrable,
            defer_after_s=1,
            retry_delay=timedelta(seconds=0),
            task_overrides=LIMITS.get(dag_id),
        )
        dag.get_task("move.transfer").retries = 0 if dag_id in ("marked_failed", "timed_out") else 1
    return dag


for name, is_deferrable in DAGS.items():
    globals()[name] = replication(name, is_deferrable)
