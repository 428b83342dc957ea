"""Arguments that Airflow renders: every text of a job, and none that is left."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from skyplane_orchestration.model.job import Limits, MinimizeCost, Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneSweepOperator,
    SkyplaneTransferOperator,
)
from skyplane_orchestration.operators.base import SkyplaneOperator

CONTEXT: Any = {"ds": "2026-01-02", "params": {"url": "s3://a/x/", "region": "aws:eu-west-3"}}

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}


def rendered(operator: SkyplaneOperator) -> Any:
    """The operator as Airflow's worker leaves it."""
    operator.render_template_fields(CONTEXT)
    return operator


def test_every_text_of_a_job_is_rendered() -> None:
    job = TransferJob(
        Location(
            "{{ params.url }}",
            "{{ params.region }}",
            "http://{{ ds }}",
            "env:{{ ds }}",
            {"checksum": "{{ ds }}"},
        ),
        Location("s3://b/dt={{ ds }}/{single}/"),
        MinimizeCost(2.0),
        include=("{{ ds }}/*",),
        exclude=("{% if ds %}tmp{% endif %}",),
        publish_last=("{{ ds }}.json",),
        policy=Policy(("{{ params.region }}",), ("gcp:{{ ds }}",), 40.0),
        limits=Limits(instance_types={"aws": "m5.{{ ds }}"}, chunk_mib=8),
        volume_gb=1.5,
        move=True,
        files_from=("{{ ds }}/a",),
        newer_than="{{ ds }}",
        older_than="{{ ds }}T06:00:00Z",
        min_size="{{ ds[-1] }}K",
        max_size="{{ ds[-1] }}G",
        max_delete="{{ ds[-1] }}%",
        bwlimit="{{ ds[-1] }}M",
    )
    for given in (job, job.to_dict()):
        assert rendered(SkyplanePlanOperator(task_id="t", job=given)).transfer_job() == TransferJob(
            Location(
                "s3://a/x/",
                "aws:eu-west-3",
                "http://2026-01-02",
                "env:2026-01-02",
                {"checksum": "2026-01-02"},
            ),
            Location("s3://b/dt=2026-01-02/{single}/"),
            MinimizeCost(2.0),
            include=("2026-01-02/*",),
            exclude=("tmp",),
            publish_last=("2026-01-02.json",),
            policy=Policy(("aws:eu-west-3",), ("gcp:2026-01-02",), 40.0),
            limits=Limits(instance_types={"aws": "m5.2026-01-02"}, chunk_mib=8),
            volume_gb=1.5,
            move=True,
            files_from=("2026-01-02/a",),
            newer_than="2026-01-02",
            older_than="2026-01-02T06:00:00Z",
            min_size="2K",
            max_size="2G",
            max_delete="2%",
            bwlimit="2M",
        )


def test_the_job_that_was_given_is_not_changed() -> None:
    """Every run of a DAG renders the same objects."""
    job = TransferJob(Location("s3://a/"), Location("s3://b/dt={{ ds }}/"))
    rendered(SkyplanePlanOperator(task_id="t", job=job))
    assert job.destination.url == "s3://b/dt={{ ds }}/"


def test_a_mapped_task_renders_its_job() -> None:
    job = TransferJob(Location("s3://a/"), Location("s3://b/dt={{ ds }}/"))
    with DAG(dag_id="d", schedule=None):
        mapped: Any = SkyplaneTransferOperator.partial(task_id="t", job=job).expand(
            manifest=["s3://b/one"]
        )
    one = rendered(mapped.unmap({"manifest": "s3://b/one"}))
    assert one.transfer_job().destination.url == "s3://b/dt=2026-01-02/"


def test_a_sweep_renders_its_destinations(hook: Any, context: Any) -> None:
    operator = SkyplaneSweepOperator(
        task_id="t", destinations=[Location("s3://b/dt={{ ds }}/"), "s3://c/dt={{ ds }}/"]
    )
    rendered(operator).execute(context)
    (given,) = hook.clients["default"].of("sweep")
    assert [place.url for place in given["destinations"]] == [
        "s3://b/dt=2026-01-02/",
        "s3://c/dt=2026-01-02/",
    ]


def test_a_job_that_renders_to_an_invalid_location_fails_without_retry(
    hook: Any, context: Any
) -> None:
    job = TransferJob(Location("s3://a/"), Location("{{ ds }}", "{{ ds }}"))
    with pytest.raises(AirflowFailException, match="2026-01-02"):
        rendered(SkyplanePlanOperator(task_id="t", job=job)).execute(context)


JOB = TransferJob(Location("s3://a/"), Location("s3://b/")).to_dict()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({**ENDS, "source_url": "s3://src/{{ ds }}/"}, "source_url"),
        ({**ENDS, "destination_url": "s3://dst/{% raw %}/"}, "destination_url"),
        ({**ENDS, "manifest": "s3://dst/{{ ds }}"}, "manifest"),
        ({**ENDS, "include": ["*", "{{ ds }}"]}, r"include\[1\]"),
        ({"job": TransferJob(Location("s3://a/{{ ds }}"), Location("b"))}, "job.source.url"),
        ({"job": {**JOB, "destination": {"url": "s3://b/{{ ds }}"}}}, "job.destination.url"),
        (
            {"job": {**JOB, "source": {"url": "s3://a/", "options": {"x": "{{ ds }}"}}}},
            "job.source.options.x",
        ),
    ],
)
def test_an_unrendered_template_is_refused_before_the_work(
    hook: Any, context: Any, arguments: dict[str, Any], field: str
) -> None:
    operator = SkyplaneTransferOperator(task_id="t", **arguments)
    with pytest.raises(AirflowFailException, match=rf"configuration-invalid: {field} is "):
        operator.execute(context)
    assert hook.clients == {}


def test_single_braces_are_legal(hook: Any, context: Any) -> None:
    operator = SkyplaneTransferOperator(
        task_id="t", source_url="s3://src/{a}/{/", destination_url="s3://dst/}}/%}"
    )
    assert rendered(operator).execute(context)["copied"] == 30
