"""From an operator's arguments to a job."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG
from hypothesis import given, strategies as st

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    MaximizeThroughput,
    MinimizeCost,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneSweepOperator,
    SkyplaneTransferOperator,
    SkyplaneVerifyOperator,
)
from skyplane_orchestration.operators.job import label_of
from skyplane_orchestration.operators.job_arguments import TYPES

ENDS: dict[str, Any] = {"source_url": "s3://a/x/", "destination_url": "gs://b/y/"}


def job_of(**arguments: Any) -> TransferJob:
    return SkyplanePlanOperator(task_id="t", **arguments).transfer_job()


def test_two_urls_are_enough_and_defaults_are_the_jobs_own() -> None:
    assert job_of(**ENDS) == TransferJob(Location("s3://a/x/"), Location("gs://b/y/"))


def test_connections_are_references_to_credentials() -> None:
    job = job_of(**ENDS, source_conn_id="aws_in", destination_conn_id="gcp_out")
    found = job.source.credential_ref, job.destination.credential_ref
    assert found == ("airflow:aws_in", "airflow:gcp_out")


@pytest.mark.parametrize(
    ("arguments", "objective"),
    [
        ({}, None),
        ({"min_throughput_gbps": ""}, None),
        ({"max_usd_per_gb": "0.1"}, MaximizeThroughput(max_usd_per_gb=0.1)),
    ],
)
def test_objectives(arguments: dict[str, Any], objective: object) -> None:
    assert job_of(**ENDS, **arguments).objective == objective


def test_a_whole_job_as_value_or_document() -> None:
    job = TransferJob(Location("s3://a/"), Location("s3://b/"), MinimizeCost(2), conflict="skip")
    assert job_of(job=job) == job
    assert job_of(job=job.to_dict()) == job


def test_nothing_is_checked_before_templates_are_rendered() -> None:
    SkyplanePlanOperator(
        task_id="t",
        source_url="{{ var.value.bucket }}",
        destination_url="{{ x }}",
        source_region="{{ x }}",
        allow_regions=["{{ x }}"],
        deadline_s="{{ x }}",
    )


def test_group_accepts_exactly_the_arguments_of_the_job() -> None:
    operator = SkyplanePlanOperator(task_id="t", **ENDS)
    names = set(TYPES)
    assert names <= set(vars(operator))
    own = set(SkyplanePlanOperator.template_fields) - {"skyplane_conn_id", "fleet_name"}
    assert own <= names


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"conflict": "ask"}, "conflict"),
        ({"policy": {"on_no_capacity": "wait"}}, "on_no_capacity"),
        ({"objective": {"kind": "{{ x }}"}, "verify": "maybe"}, "verify"),
        ({"include": ["{{ x }}"], "encrypt": "perhaps"}, "encrypt"),
    ],
)
def test_what_is_known_of_a_job_with_templates_fails_the_parse(
    more: dict[str, Any], name: str
) -> None:
    ends: dict[str, Any] = {
        "schema_version": 1,
        "source": {"url": "s3://{{ x }}/"},
        "destination": {"url": "{{ x }}"},
    }
    SkyplanePlanOperator(task_id="t", job=ends)
    with pytest.raises(ConfigurationInvalid, match=name):
        SkyplanePlanOperator(task_id="t", job={**ends, **more})


@pytest.mark.parametrize("region", ["", "local:rack-7", "aws:eu-west-3"])
def test_regions_that_may_be_right_are_left_for_the_run(region: str) -> None:
    operator_of(source_region=region, allow_regions=["local:*", "aws:eu-*"])
    job = TransferJob(Location("s3://a/", "aws:of-our-own-grid-1"), Location("s3://b/"))
    SkyplanePlanOperator(task_id="t", job=job)


def test_provision_needs_no_job_but_no_half_of_one() -> None:
    SkyplaneProvisionOperator(task_id="t", plan={})
    with pytest.raises(ConfigurationInvalid, match="destination_url is missing"):
        SkyplaneProvisionOperator(task_id="t", plan={}, source_url="s3://a/")


NO_ENDS: dict[str, Any] = dict.fromkeys(ENDS)


def operator_of(**arguments: Any) -> SkyplanePlanOperator:
    return SkyplanePlanOperator(task_id="t", **{**ENDS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"destination_url": "s3:/a"}, "destination_url"),
        ({"min_throughput_gbps": 1, "deadline_s": 60}, "deadline_s"),
        ({"job": {}}, "either job or"),
        ({"job": {"schema_version": 99}, **NO_ENDS}, "schema_version 99"),
        (NO_ENDS, "source_url is missing"),
        ({"destination_url": None}, "destination_url is missing; give it, or a whole job"),
        ({"source_url": ""}, "source_url is missing"),
        ({"source_url": "{{ x }}", "destination_url": None}, "destination_url is missing"),
        ({"source_region": "aws:eu-wset-3"}, "source_region .*did you mean aws:eu-west-3"),
        ({"destination_region": "gcp:mars-1"}, "destination_region 'gcp:mars-1' is no region"),
        ({"destination_region": "{{ x }}", "source_region": "aws:x"}, "source_region"),
        ({"allow_regions": ["aws:*", "gpc:*"]}, "allow_regions 'gpc:\\*' matches no region"),
        ({"exclude_regions": "aws:eu-wset-*"}, "exclude_regions"),
        ({"move": True, "verify": "none"}, "leave out verify='none'"),
        ({"delete": True, "recursive": False}, r"copy recursively \(recursive=True\)"),
        ({"safety_margin": 2}, "safety_margin must be a number from 0"),
    ],
)
def test_what_is_known_to_be_wrong_fails_the_parse(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=name) as caught:
        operator_of(**arguments)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value), "an option of the command"


def test_a_template_is_left_for_the_run() -> None:
    operator = operator_of(
        source_url="{{ params.source }}",
        conflict="{{ params.conflict }}",
        min_throughput_gbps="{{ params.gbps }}",
        include=["{{ ds }}/*"],
    )
    assert operator.source_url == "{{ params.source }}"


def test_the_output_of_another_task_is_left_for_the_run() -> None:
    with DAG(dag_id="d", schedule=None):
        first = SkyplanePlanOperator(task_id="first", **ENDS)
        url: Any = first.output
        operator = operator_of(source_url=url["src"])
    assert operator.source_url == url["src"]


# -- Labels of mapped tasks: both ends, in few characters


S3_ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("s3://example-sydney/tables/customers/", "s3://example-sydney/tables/customers/"),
        ("s3://example-sydney/warehouse/daily/tables/customers/", "example-sydney/…/customers"),
        ("az://account/container/2026/03/01/tables/customers/", "account/…/customers"),
        ("file:///srv/data/warehouse/daily/tables/customers/", "/…/customers"),
        ("gs://a-bucket-whose-name-is-longer-than-usual/", "…bucket-whose-name-is-longer"),
        ("s3://b/" + "a-table-with-a-name-that-fills-a-line/" * 2, "…"),
    ],
)  # fmt: skip
def test_the_middle_of_long_urls_is_left_out(url: str, short: str) -> None:
    label = label_of(url, "s3://b/")
    assert label.startswith(short)
    assert len(label) <= 40 + len(" to s3://b/")


@given(st.text(), st.text())
def test_a_label_fits_airflows_table(source: str, destination: str) -> None:
    assert len(label_of(source, destination)) < 250


@pytest.mark.parametrize(
    "arguments",
    [
        S3_ENDS,
        {"job": TransferJob(Location("s3://src/"), Location("s3://dst/"))},
        {"job": TransferJob(Location("s3://src/"), Location("s3://dst/")).to_dict()},
    ],
)
def test_the_label_of_a_task_is_that_of_its_job(arguments: dict[str, Any]) -> None:
    for kind in (SkyplaneTransferOperator, SkyplaneVerifyOperator):
        assert kind(task_id="t", **arguments).map_label == "s3://src/ to s3://dst/"


def test_only_mapped_tasks_have_a_template_and_the_users_comes_first() -> None:
    assert SkyplaneTransferOperator(task_id="t", **S3_ENDS).map_index_template is None
    with DAG(dag_id="d", schedule=None):
        mapped = [
            SkyplaneTransferOperator.partial(task_id="transfer", **S3_ENDS).expand(
                include=[[], []]
            ),
            SkyplaneVerifyOperator.partial(task_id="verify", **S3_ENDS).expand(include=[[], []]),
            SkyplaneSweepOperator.partial(task_id="sweep").expand(older_than_s=[1, 2]),
            SkyplaneTransferOperator.partial(
                task_id="mine", map_index_template="{{ ds }}", **S3_ENDS
            ).expand(include=[[], []]),
        ]
    templates = [task.map_index_template for task in mapped]
    assert templates == ["{{ task.map_label }}", "{{ task.map_label }}", None, "{{ ds }}"]
