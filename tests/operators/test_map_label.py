"""Labels of mapped tasks: both ends, in few characters."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG
from hypothesis import given, strategies as st

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import (
    SkyplaneSweepOperator,
    SkyplaneTransferOperator,
    SkyplaneVerifyOperator,
)
from skyplane_orchestration.operators.job import label_of

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}


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
        ENDS,
        {"job": TransferJob(Location("s3://src/"), Location("s3://dst/"))},
        {"job": TransferJob(Location("s3://src/"), Location("s3://dst/")).to_dict()},
    ],
)
def test_the_label_of_a_task_is_that_of_its_job(arguments: dict[str, Any]) -> None:
    for kind in (SkyplaneTransferOperator, SkyplaneVerifyOperator):
        assert kind(task_id="t", **arguments).map_label == "s3://src/ to s3://dst/"


def test_only_mapped_tasks_have_a_template_and_the_users_comes_first() -> None:
    assert SkyplaneTransferOperator(task_id="t", **ENDS).map_index_template is None
    with DAG(dag_id="d", schedule=None):
        mapped = [
            SkyplaneTransferOperator.partial(task_id="transfer", **ENDS).expand(include=[[], []]),
            SkyplaneVerifyOperator.partial(task_id="verify", **ENDS).expand(include=[[], []]),
            SkyplaneSweepOperator.partial(task_id="sweep").expand(older_than_s=[1, 2]),
            SkyplaneTransferOperator.partial(
                task_id="mine", map_index_template="{{ ds }}", **ENDS
            ).expand(include=[[], []]),
        ]
    templates = [task.map_index_template for task in mapped]
    assert templates == ["{{ task.map_label }}", "{{ task.map_label }}", None, "{{ ds }}"]
