"""Copies a list of tables, each with a mapped group of tasks: plan, provision, transfer, teardown.

Each table has a plan, a fleet and a row of tasks of its own, so that each step can be seen and
cleared alone. Where all tables have the same regions, `mapped_on_one_fleet` starts fewer gateways.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, task, task_group

from skyplane_orchestration.operators import SkyplaneTransferGroup

SOURCE, DESTINATION = "s3://example-sydney/tables", "s3://example-tokyo/tables"


@task
def tables() -> list[dict[str, str]]:
    """The tables to copy; read them from a catalogue here."""
    return [
        {"source": f"{SOURCE}/{name}/", "destination": f"{DESTINATION}/{name}/"}
        for name in ("customers", "invoices")
    ]


@task_group
def replicate(source: str, destination: str) -> None:
    SkyplaneTransferGroup(
        "copy",
        source_url=source,
        source_region="aws:ap-southeast-2",
        destination_url=destination,
        destination_region="aws:ap-northeast-1",
        conflict="replace-if-different",
        retries=2,
    )


with DAG(
    dag_id="mapped_groups",
    description="Copies many tables, each with tasks of its own",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    replicate.expand_kwargs(tables())
