"""Copies a list of tables, one mapped task each, over one fleet that all of them share.

`plan` plans for the folder of all tables. The gateways start once, and end after the last table.
A table that fails does not stop the others. Its task can be cleared alone.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, TriggerRule, task

from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTeardownOperator,
    SkyplaneTransferOperator,
)

SOURCE, DESTINATION = "s3://example-sydney/tables", "s3://example-paris/tables"
SOURCE_REGION, DESTINATION_REGION = "aws:ap-southeast-2", "aws:eu-west-3"
FLEET = "tables"


@task
def tables() -> list[dict[str, str]]:
    """The tables to copy; read them from a catalogue here."""
    names = ("customers", "invoices", "orders")
    return [
        {"source_url": f"{SOURCE}/{name}/", "destination_url": f"{DESTINATION}/{name}/"}
        for name in names
    ]


with DAG(
    dag_id="mapped_on_one_fleet",
    description="Copies many tables over one fleet",
    schedule=None,
    catchup=False,
    tags=["skyplane", "example"],
) as dag:
    plan = SkyplanePlanOperator(
        task_id="plan",
        fleet_name=FLEET,
        source_url=f"{SOURCE}/",
        destination_url=f"{DESTINATION}/",
        source_region=SOURCE_REGION,
        destination_region=DESTINATION_REGION,
    )
    provision = SkyplaneProvisionOperator(task_id="provision", fleet_name=FLEET, plan=plan.output)
    transfers = SkyplaneTransferOperator.partial(
        task_id="transfer",
        fleet_name=FLEET,
        fleet=provision.output,
        conflict="replace-if-different",
        retries=2,
        max_active_tis_per_dagrun=16,
        source_region=SOURCE_REGION,
        destination_region=DESTINATION_REGION,
    ).expand_kwargs(tables())
    teardown = SkyplaneTeardownOperator(
        task_id="teardown", fleet_name=FLEET, fleet=provision.output
    )
    transfers >> teardown.as_teardown(setups=provision, on_failure_fail_dagrun=True)
    # Also after a failed provision, whose worker may have died.
    teardown.trigger_rule = TriggerRule.ALL_DONE

    # Only the last tasks decide about a run. Without this one, a successful teardown would
    # hide a failed table.
    @task
    def all_copied() -> None:
        """Nothing."""

    transfers >> all_copied()
