"""The metadata of a materialization, and its data version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.transfer import samples

from skyplane_orchestration.dagster import build_skyplane_transfer_asset
from skyplane_orchestration.dagster.checks import ALL_OBJECTS_COPIED, checks_of
from skyplane_orchestration.dagster.metadata import (
    data_version_of,
    materialization_metadata,
    plan_metadata,
)
from skyplane_orchestration.model.result import CopiedObject, EdgeOutcome

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

JOB, PLAN = samples.JOB, samples.PRICED_PLAN


def told(**changes: Any) -> dict[str, Any]:
    return dict(materialization_metadata(JOB, PLAN, samples.result(**changes)))


def rows(found: Any) -> list[dict[str, Any]]:
    return [dict(record.data) for record in found.records]


def test_edges_have_the_modelled_the_probed_the_planned_and_the_achieved_rate() -> None:
    edge = EdgeOutcome(samples.A, samples.B, 1.0, 0.8, 100, 2.0, 1.1)
    # One of a plan that was made again, of which this metadata knows the first only.
    other = EdgeOutcome(samples.A, samples.R, 0.5, 0.4, 50, 0.7)
    assert rows(told(edges=(edge, other))["skyplane/edges"]) == [
        {
            "from": samples.A,
            "to": samples.B,
            "modelled_gbps": 2.0,
            "probed_gbps": 1.1,
            "planned_gbps": 1.0,
            "achieved_gbps": 0.8,
            "connections": 1,
            "usd_per_gb": 0.1,
        },
        {
            "from": samples.A,
            "to": samples.R,
            "modelled_gbps": 0.7,
            "probed_gbps": "",
            "planned_gbps": 0.5,
            "achieved_gbps": 0.4,
            "connections": "",
            "usd_per_gb": "",
        },
    ]


def test_objects_have_tables_of_ten_rows_at_most() -> None:
    copied = tuple(CopiedObject(f"s3://src/{n}", f"gs://dst/{n}", 99 - n) for n in range(10))
    found = told(failed=12, largest=copied)
    assert len(rows(found["skyplane/failed_objects"])) == 10
    assert rows(found["skyplane/failed_objects"])[0] == {
        "source": "s3://src/p/0",
        "code": "not-found",
        "reason": "it is gone",
        "attempts": 1,
    }
    largest = rows(found["skyplane/largest_objects"])
    assert largest[0] == {"source": "s3://src/0", "destination": "gs://dst/0", "bytes": 99}
    assert len(largest) == 10


def test_there_is_no_empty_table() -> None:
    assert "skyplane/largest_objects" not in told()
    assert "skyplane/failed_objects" not in told()


def test_the_plan_has_a_picture_and_its_paths() -> None:
    found: dict[str, Any] = dict(plan_metadata(PLAN))
    assert "data:image/svg+xml;base64," in found["skyplane/plan_picture"].value
    # Dagster's page hides Markdown of 1000 characters and more behind a click.
    assert len(found["skyplane/plan_paths"].value) < 1000


@pytest.mark.parametrize(
    "counts",
    [
        {"copied": 30},
        {"copied": 0, "skipped": 30},
        {"copied": 12, "copied_earlier": 4, "skipped": 10, "failed": 3, "unfinished": 5},
    ],
    ids=["the first run", "a run again", "failed objects are allowed"],
)
def test_counts_add_up_and_are_those_of_the_check(counts: dict[str, int]) -> None:
    found = told(**counts)
    parts = ("copied", "skipped", "failed", "unfinished")
    assert found["skyplane/objects"] == sum(found[f"skyplane/{name}"] for name in parts) == 30
    key = dg.AssetKey("paris")
    selected = {dg.AssetCheckKey(key, ALL_OBJECTS_COPIED)}
    context: Any = SimpleNamespace(selected_asset_check_keys=selected)
    (check,) = checks_of(dg.AssetCheckResult, context, key, [samples.result(**counts)])
    assert {name: value.value for name, value in check.metadata.items()} == {
        name: found[name] for name in check.metadata
    }


# -- data versions, digests of sources


def test_a_materialization_has_the_digest_of_its_source(lab: Lab) -> None:
    lab.client.result = samples.result(source_digest="abc")
    made = build_skyplane_transfer_asset("paris", source="s3://a/x/", destination="s3://b/y/")
    (event,) = lab.materialize(made).get_asset_materialization_events()
    tags = event.materialization.tags or {}
    assert tags["dagster/data_version"] == "abc"
    assert tags["dagster/data_version_is_user_provided"] == "true"


def test_an_incomplete_copy_has_no_version_of_its_own() -> None:
    whole = samples.result(source_digest="abc")
    assert data_version_of([samples.result(failed=1, source_digest="abc")]) is None
    assert data_version_of([samples.result(unfinished=1, source_digest="abc")]) is None
    # The listing did not come to its end.
    assert data_version_of([whole, samples.result()]) is None


def test_the_order_of_partitions_counts() -> None:
    one, two = samples.result(source_digest="1"), samples.result(source_digest="2")
    assert data_version_of([one, two]) == data_version_of([one, two])
    assert data_version_of([one, two]) != data_version_of([two, one])
