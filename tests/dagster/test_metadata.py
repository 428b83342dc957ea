"""The metadata of a materialization, and its data version."""

from __future__ import annotations

import base64
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.transfer import samples
from tests.transfer.samples import PRICED_PLAN, A, B, R

from skyplane_orchestration.dagster import build_skyplane_transfer_asset
from skyplane_orchestration.dagster.checks import ALL_OBJECTS_COPIED, checks_of
from skyplane_orchestration.dagster.metadata import (
    data_version_of,
    materialization_metadata,
    plan_image_markdown,
    plan_markdown,
    plan_metadata,
)
from skyplane_orchestration.model.plan import InstanceGroup, PlanEdge, PlanPath
from skyplane_orchestration.model.result import CopiedObject, EdgeOutcome
from skyplane_orchestration.planner import plan_svg

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


# -- A plan as Markdown


#: Two thirds go by a relay.
RELAYED = replace(
    PRICED_PLAN,
    throughput_gbps=3.0,
    instances={tag: InstanceGroup("m5.large", 2) for tag in (A, R, B)},
    edges=(
        PlanEdge(A, R, 2.0, 40, 5.0, 0.05),
        PlanEdge(R, B, 2.0, 40, 5.0, 0.08),
        PlanEdge(A, B, 1.0, 20, 1.0, 0.1),
    ),
    paths=(PlanPath((A, R, B), 2.0), PlanPath((A, B), 1.0)),
)


def test_the_markdown_has_a_bar_for_each_path() -> None:
    lines = plan_markdown(RELAYED).splitlines()
    assert lines[0].startswith("**3.00 Gbit/s for 0.0000 USD per GB on")
    assert lines[3] == f"  2.00 Gbit/s {'█' * 16} {A} → {R} → {B}"
    assert lines[4] == f"  1.00 Gbit/s {'█' * 8}{' ' * 8} {A} → {B}"


def test_a_path_of_almost_no_flow_has_a_bar() -> None:
    thin = replace(RELAYED, paths=(*RELAYED.paths, PlanPath((A, B), 0.001)))
    assert plan_markdown(thin).count("█") == 16 + 8 + 1


def test_within_one_region_the_path_is_the_region() -> None:
    inside = replace(RELAYED, dst=A, edges=(), paths=(PlanPath((A,), 3.0),))
    assert f" {A}" in plan_markdown(inside)


def test_the_image_is_the_picture() -> None:
    text = plan_image_markdown(RELAYED)
    assert text.startswith(f"![plan from {A} to {B}](data:image/svg+xml;base64,")
    data = text.partition("base64,")[2].removesuffix(")")
    assert base64.b64decode(data).decode() == plan_svg(RELAYED)
