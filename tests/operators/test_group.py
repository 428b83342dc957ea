"""How the tasks of a group are wired."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import DAG, BaseOperator, TriggerRule

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
            retries=2,
            retry_delay=timedelta(seconds=1),
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
            retries=2,
            queue="all",
            task_overrides={"transfer": {"pool": "wide", "retries": 5}, "teardown": {"queue": "x"}},
        )
    assert (group.transfer.pool, group.transfer.retries, group.transfer.queue) == ("wide", 5, "all")
    assert (group.teardown.queue, group.teardown.retries) == ("x", 2)
    assert group.plan.pool != "wide"
    assert dag.get_task("one.transfer") is group.transfer


ENDS: dict[str, Any] = {"source_url": "s3://a/", "destination_url": "s3://b/"}


def group_of(**arguments: Any) -> SkyplaneTransferGroup:
    with DAG(dag_id="d", schedule=None):
        return SkyplaneTransferGroup("one", **{**ENDS, **arguments})


def tasks_of(group: SkyplaneTransferGroup) -> list[Any]:
    return [group.plan, group.provision, group.transfer, group.teardown, group.finish]


def told(*_: object) -> None:
    """A callback."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retries", 3),
        ("retry_delay", timedelta(minutes=7)),
        ("retry_exponential_backoff", True),
        ("max_retry_delay", timedelta(hours=1)),
        ("pool", "wide"),
        ("pool_slots", 2),
        ("queue", "near"),
        ("priority_weight", 7),
        ("weight_rule", "absolute"),
        ("owner", "ada"),
        ("execution_timeout", timedelta(hours=3)),
        ("depends_on_past", True),
        ("executor", "LocalExecutor"),
        ("executor_config", {"a": 1}),
        ("run_as_user", "ada"),
        ("max_active_tis_per_dag", 2),
        ("do_xcom_push", False),
        ("on_failure_callback", told),
        ("on_success_callback", told),
        ("params", {"a": 1}),
    ],
)
def test_an_argument_of_airflow_reaches_all_five_tasks(name: str, value: Any) -> None:
    plain: Any = BaseOperator(task_id="plain", **{name: value})
    for task in tasks_of(group_of(**{name: value})):
        assert getattr(task, name) == getattr(plain, name), task.task_id


def test_default_arguments_of_the_group_reach_all_five_tasks() -> None:
    group = group_of(default_args={"retries": 4, "pool": "wide"}, retries=1)
    assert [(task.retries, task.pool) for task in tasks_of(group)] == [(1, "wide")] * 5


def test_arguments_of_the_task_group_itself() -> None:
    group = group_of(prefix_group_id=False, tooltip="nightly")
    assert (group.plan.task_id, group.tooltip) == ("plan", "nightly")


def test_an_argument_of_one_operator_reaches_its_task() -> None:
    group = group_of(poll_interval_s=7.0, defer_after_s=3.0, deferrable=True)
    assert (group.transfer.poll_interval_s, group.transfer.defer_after_s) == (7.0, 3.0)
    assert (group.provision.deferrable, group.transfer.deferrable) == (True, True)


def test_a_trigger_rule_says_when_the_group_starts() -> None:
    """In the other tasks it would let a run succeed whose transfer has failed."""
    group = group_of(trigger_rule="all_done")
    rules = [TriggerRule(task.trigger_rule).value for task in tasks_of(group)]
    assert rules == ["all_done", "all_success", "all_success", "all_done", "all_success"]


def test_overrides_come_before_everything_else() -> None:
    group = group_of(
        retries=2,
        conflict="skip",
        cancel_on_kill=True,
        task_overrides={
            "plan": {"source_url": "s3://other/", "conflict": "replace", "task_id": "planning"},
            "provision": {"deferrable": True, "fleet_name": "mine"},
            "transfer": {"cancel_on_kill": False, "manifest": "s3://b/m.csv", "outlets": ["x"]},
            "teardown": {"retries": 9, "trigger_rule": "one_done"},
            "finish": {"doc_md": "done"},
        },
    )
    plan, transfer = vars(group.plan), vars(group.transfer)
    assert (plan["source_url"], plan["conflict"]) == ("s3://other/", "replace")
    assert group.plan.task_id == "one.planning"
    assert (group.provision.deferrable, group.provision.fleet_name) == (True, "mine")
    assert not transfer["cancel_on_kill"]
    assert (transfer["manifest"], transfer["conflict"]) == ("s3://b/m.csv", "skip")
    assert (group.teardown.retries, group.teardown.trigger_rule) == (9, "one_done")
    assert (group.finish.doc_md, group.finish.retries) == ("done", 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"retires": 2}, "SkyplaneTransferGroup has no argument 'retires'; did you mean 'retries'"),
        ({"destinaton_url": "s3://x/"}, "has no argument 'destinaton_url'; did you mean 'dest"),
        ({"frobnicate": 1}, "has no argument 'frobnicate'; docs/reference/operators.md has all$"),
        ({"task_id": "x"}, "has no argument 'task_id'"),
        ({"fleet": {}}, "has no argument 'fleet'"),
        (
            {"task_overrides": {"transfer": {"poool": "x"}}},
            r"task_overrides\['transfer'\] has no argument 'poool'; did you mean 'pool'",
        ),
        (
            {"task_overrides": {"finish": {"source_url": "s3://x/"}}},
            r"task_overrides\['finish'\] has no argument 'source_url'",
        ),
    ],
)
def test_a_typo_is_named_as_an_argument_of_the_group_at_parse_time(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationInvalid, match=text):
        group_of(**arguments)


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
