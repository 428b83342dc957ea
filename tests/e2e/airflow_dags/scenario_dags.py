"""DAGs of the scenarios in `airflow_scenarios.py`: copies between two folders.

A folder with the region tag of a cloud makes a plan with gateways in several regions,
which all run on this machine and see the same files.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, BaseOperator, task

from skyplane_gateway.common.job_options import ConflictRule
from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTeardownOperator,
    SkyplaneTransferOperator,
    skyplane_transfer_group,
)

SOURCE = f"file://{os.environ['SCENARIO_SOURCE']}/"
DESTINATION = f"file://{os.environ['SCENARIO_DESTINATION']}"

PAIR: dict[str, Any] = {
    "source_region": "aws:ap-southeast-2",
    "destination_region": "aws:eu-west-3",
}


class After(BaseOperator):
    """A user's task that follows a group."""

    def execute(self, context: object) -> str:
        return "after"


def group_dag(dag_id: str, **job: Any) -> DAG:
    """A DAG of one group and nothing else; the destination is named after it."""
    with DAG(dag_id=dag_id, schedule=None, catchup=False) as dag:
        skyplane_transfer_group(
            "move",
            source_url=SOURCE,
            destination_url=f"{DESTINATION}/{dag_id}/",
            instance_limit=1,
            **job,
        )
    return dag


with DAG(dag_id="all_good", schedule=None, catchup=False) as all_good:
    group = skyplane_transfer_group(
        "move",
        job=TransferJob(
            Location(SOURCE),
            Location(f"{DESTINATION}/{{{{ dag.dag_id }}}}/"),
            conflict="replace-if-different",
        ),
        retries=1,
    )
    group >> After(task_id="after")

transfer_fails = group_dag("transfer_fails", conflict="fail", **PAIR)
provision_fails = group_dag("provision_fails", **PAIR)
teardown_fails = group_dag("teardown_fails")
killed = group_dag("killed", **PAIR)

#: Such small copies would end before their tasks are deferred.
AT_ONCE: dict[str, Any] = {"deferrable": True, "defer_after_s": 0}
deferred = group_dag("deferred", **AT_ONCE, **PAIR)
deferred_fails = group_dag("deferred_fails", conflict="fail", **AT_ONCE, **PAIR)

#: What the connection `clouds` launches.
CLOUDS = {
    "skyplane_conn_id": "clouds",
    "source_region": "aws:us-east-1",
    "destination_region": "gcp:us-central1",
}
#: No direct path has the rate, and only Azure may have relays.
OVER_AZURE = {
    "skyplane_conn_id": "clouds",
    "source_region": "aws:ap-southeast-2",
    "destination_region": "gcp:europe-west1",
    "min_throughput_gbps": 3.2,
    "allow_regions": ["azure:*"],
}
on_clouds = group_dag("on_clouds", **OVER_AZURE)
killed_on_clouds = group_dag("killed_on_clouds", **CLOUDS)

with DAG(dag_id="one_task", schedule=None, catchup=False) as one_task:
    SkyplaneTransferOperator(
        task_id="copy",
        source_url=SOURCE,
        destination_url=f"{DESTINATION}/one_task/",
        min_throughput_gbps="{{ 1 + 1 }}",
        manifest=f"{DESTINATION}/manifests/{{{{ run_id }}}}.parquet",
        outlets=[Asset("x-scenario://copies/one_task")],
    )

with DAG(dag_id="deferred_one_task", schedule=None, catchup=False) as deferred_one_task:
    SkyplaneTransferOperator(
        task_id="copy",
        source_url=SOURCE,
        destination_url=f"{DESTINATION}/deferred_one_task/",
        gateways="always",
        poll_interval_s=0.2,
        execution_timeout=timedelta(minutes=5),
        outlets=[Asset("x-scenario://copies/deferred_one_task")],
        **AT_ONCE,
        **PAIR,
    )


#: A connection with `max_active_fleets` 1.
ONE_FLEET: dict[str, Any] = {"skyplane_conn_id": "one_fleet"}
with DAG(dag_id="second_fleet", schedule=None, catchup=False) as second_fleet:
    ends: dict[str, Any] = {
        "source_url": SOURCE,
        "destination_url": f"{DESTINATION}/second_fleet/",
        **PAIR,
    }
    plan = SkyplanePlanOperator(task_id="plan", **ends)
    first = SkyplaneProvisionOperator(task_id="first", plan=plan.output, **ONE_FLEET)
    second = SkyplaneTransferOperator(
        task_id="second",
        gateways="always",
        deferrable=True,
        poll_interval_s=0.2,
        **ends,
        **ONE_FLEET,
    )
    first >> second >> SkyplaneTeardownOperator(task_id="teardown", **ONE_FLEET)


@task
def by_hook(place: str, conflict: ConflictRule, ti: Any = None) -> dict[str, Any]:
    job = TransferJob(Location(SOURCE), Location(f"{DESTINATION}/{place}/"), conflict=conflict)
    return SkyplaneHook().run({"ti": ti}, job, gateways="never").to_dict()


with DAG(dag_id="hook", schedule=None, catchup=False) as hook:
    by_hook.override(task_id="copies")("hook", "replace") >> by_hook.override(task_id="fails")(
        "hook_fails", "fail"
    )


#: What a form or another task gives for false.
FALSE: dict[str, Any] = {"flag": False, "word": "truee", "skip": ["sub/*", "*.tmp"]}
with DAG(dag_id="flags", schedule=None, catchup=False, params=FALSE) as flags:
    SkyplaneTransferOperator(
        task_id="template",
        source_url=SOURCE,
        destination_url=f"{DESTINATION}/flags/template/",
        move="{{ params.flag }}",
        exclude="{{ params.skip }}",
        chunk_mib="{{ 5 }}",
    )
    SkyplaneTransferOperator.partial(task_id="mapped", source_url=SOURCE).expand_kwargs(
        [{"move": "false", "destination_url": f"{DESTINATION}/flags/mapped/"}]
    )
    SkyplaneTransferOperator(
        task_id="wrong",
        source_url=SOURCE,
        destination_url=f"{DESTINATION}/flags/wrong/",
        move="{{ params.word }}",
    )
