"""How the tasks of a group are wired."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import DAG, TriggerRule

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.operators import SkyplaneTransferGroup, skyplane_transfer_group


@pytest.fixture
def dag() -> DAG:
    with DAG(dag_id="d", schedule=None) as dag:
        first = skyplane_transfer_group(
            "one",
            source_url="s3://a/",
            destination_url="s3://b/",
            manifest="s3://b/m",
            task_arguments={"retries": 2, "retry_delay": timedelta(seconds=1)},
        )
        second = skyplane_transfer_group("two", source_url="s3://a/", destination_url="s3://c/")
        first >> second
    return dag


def test_tasks_run_in_order(dag: DAG) -> None:
    def after(task_id: str) -> set[str]:
        return set(dag.get_task(task_id).downstream_task_ids)

    assert after("one.plan") == {"one.provision"}
    assert after("one.provision") == {"one.transfer", "one.teardown"}
    assert after("one.transfer") == {"one.teardown", "one.finish"}
    assert after("one.teardown") == set()


def test_setup_and_teardown(dag: DAG) -> None:
    provision, teardown = dag.get_task("one.provision"), dag.get_task("one.teardown")
    assert provision.is_setup
    assert teardown.is_teardown
    assert teardown.on_failure_fail_dagrun
    assert teardown.trigger_rule == TriggerRule.ALL_DONE


def test_what_follows_the_group_waits_for_the_transfer_not_for_the_teardown(dag: DAG) -> None:
    assert set(dag.get_task("two.plan").upstream_task_ids) == {"one.finish"}


def test_documents_pass_between_the_tasks(dag: DAG) -> None:
    def source_of(task_id: str, name: str) -> Any:
        return getattr(dag.get_task(task_id), name).operator.task_id

    assert source_of("one.provision", "plan") == "one.plan"
    assert source_of("one.transfer", "fleet") == "one.provision"
    assert source_of("one.teardown", "fleet") == "one.provision"


def test_provision_may_plan_again_for_the_job(dag: DAG) -> None:
    task: Any = dag.get_task("one.provision")
    assert task.transfer_job() == cast("Any", dag.get_task("one.plan")).transfer_job()


def test_all_tasks_of_a_group_name_one_fleet_and_groups_another(dag: DAG) -> None:
    tasks = ("plan", "provision", "transfer", "teardown")
    for group in ("one", "two"):
        names = {vars(dag.get_task(f"{group}.{task}"))["fleet_name"] for task in tasks}
        assert names == {group}


def test_arguments_of_tasks(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.retries == (2 if task.task_id.startswith("one.") else 0)
    assert vars(dag.get_task("one.transfer"))["manifest"] == "s3://b/m"


def test_finish_takes_no_worker(dag: DAG) -> None:
    assert dag.get_task("one.finish").inherits_from_empty_operator


def test_one_task_may_have_arguments_of_its_own() -> None:
    with DAG(dag_id="d", schedule=None) as dag:
        group = SkyplaneTransferGroup(
            "one",
            source_url="s3://a/{{ ds }}/",
            destination_url="s3://b/",
            task_arguments={"retries": 2, "queue": "all"},
            task_overrides={"transfer": {"pool": "wide", "retries": 5}, "teardown": {"queue": "x"}},
        )
    assert (group.transfer.pool, group.transfer.retries, group.transfer.queue) == ("wide", 5, "all")
    assert (group.teardown.queue, group.teardown.retries) == ("x", 2)
    assert group.plan.pool != "wide"
    assert dag.get_task("one.transfer") is group.transfer


def test_an_unknown_task_is_refused() -> None:
    with DAG(dag_id="d", schedule=None), pytest.raises(ConfigurationInvalid, match="copy"):
        SkyplaneTransferGroup("g", source_url="s3://a/", destination_url="s3://b/",
                              task_overrides={"copy": {}})  # fmt: skip


def test_every_task_says_what_it_does(dag: DAG) -> None:
    for task in dag.tasks:
        if task.task_id.startswith("one.") and not task.task_id.endswith(".finish"):
            assert "s3://a/ to s3://b/" in (task.doc_md or "")


def test_a_manifest_in_another_format_is_refused_when_the_dag_is_read() -> None:
    ends = {"source_url": "s3://a/", "destination_url": "s3://b/"}
    with (
        DAG(dag_id="e", schedule=None),
        pytest.raises(ConfigurationInvalid, match=r"cannot be written as \.json"),
    ):
        skyplane_transfer_group("one", manifest="s3://b/{m}.json", **ends)
