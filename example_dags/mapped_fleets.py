"""Copies a list of buckets, one mapped task each, and each task has a fleet of its own.

The tasks plan for their own regions, and start and end their own gateways. At most four of them
run at the same time. A task that fails does not stop the others, and can be cleared alone.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, task

from skyplane_orchestration.operators import SkyplaneTransferOperator

SOURCE, SOURCE_REGION = "s3://example-sydney/models/", "aws:ap-southeast-2"


@task
def replicas() -> list[dict[str, str]]:
    """The places to copy to; read them from a catalogue here."""
    regions = {"paris": "aws:eu-west-3", "oregon": "aws:us-west-2"}
    return [
        {"destination_url": f"s3://example-{city}/replicas/", "destination_region": region}
        for city, region in regions.items()
    ]


with DAG(
    dag_id="mapped_fleets",
    description="Copies to many places, each over a fleet of its own",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    SkyplaneTransferOperator.partial(
        task_id="copy",
        source_url=SOURCE,
        source_region=SOURCE_REGION,
        # Also for a small copy, which a task would otherwise do inside its own process.
        gateways="always",
        conflict="replace-if-different",
        retries=2,
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(replicas())
