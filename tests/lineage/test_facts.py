"""Lineage facts: names by OpenLineage's rules, and a document of fixed size."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.transfer import samples

from skyplane_orchestration.lineage.facts import dataset_of, transfer_facts
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, PlanCost, PlanEdge, PlanPath
from skyplane_orchestration.model.result import (
    EdgeOutcome,
    FailedObject,
    TransferResult,
)

PLAN = replace(
    samples.PLAN,
    src="aws:a",
    dst="aws:b",
    throughput_gbps=5.0,
    cost=PlanCost(0.02, 0.01, None, 0.03, 0.03),
    instances={tag: InstanceGroup("x", 1) for tag in ("aws:a", "aws:b", "aws:r")},
    edges=(PlanEdge("aws:a", "aws:r", 5.0, 64, 5.0, 0.02),),
    paths=(PlanPath(("aws:a", "aws:r", "aws:b"), 5.0),),
)


def result(failures: int = 0) -> TransferResult:
    return samples.result(
        transfer_key="k",
        objects=4,
        copied=3,
        copied_earlier=2,
        skipped=1,
        goodput_gbps=4e-6,
        planned_gbps=5.0,
        edges=(EdgeOutcome("aws:a", "aws:r", 5.0, 4e-6, 1000),),
        failures=tuple(FailedObject("s", "d", "c", "r" * 200, 1) for _ in range(failures)),
        manifest_uri="s3://dst/m.parquet",
        warnings=("look",),
    )


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3://bucket", "s3://bucket", "/"),
        ("s3://bucket/", "s3://bucket", "/"),
        ("gs://bucket/key", "gs://bucket", "key"),
        (
            "az://account/container/key",
            "wasbs://container@account.dfs.core.windows.net",
            "key",
        ),
        ("file:///data/in/", "file", "/data/in"),
        ("/data/in", "file", "/data/in"),
        ("file:///", "file", "/"),
    ],
)
def test_dataset_names(url: str, namespace: str, name: str) -> None:
    dataset = dataset_of(Location(url))
    assert (dataset.namespace, dataset.name) == (namespace, name)
    assert dataset.uri == Location(url).url


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket", "gs://bucket/"),
        ("az://account/box/key", "wasbs://box@account.dfs.core.windows.net/key"),
        ("file:///data/in/", "file:///data/in"),
        ("s3://bucket/dt=1/ä b#1?", "s3://bucket/dt=1/%C3%A4%20b%231%3F"),
    ],
)
def test_the_uri_of_an_asset_is_namespace_and_name(url: str, uri: str) -> None:
    assert dataset_of(Location(url)).asset_uri == uri


@pytest.mark.parametrize("url", ["file:///data/in/", "/data/in/a.csv", "file:///"])
def test_a_file_has_the_name_that_airflow_gives_it(url: str) -> None:
    """By the provider `common.io`, which makes events of assets and of hook-level lineage."""
    naming = pytest.importorskip("airflow.providers.common.io.assets.file")
    dataset = dataset_of(Location(url))
    asset = naming.create_asset(path=dataset.asset_uri)
    theirs = naming.convert_asset_to_openlineage(asset, None)
    assert (dataset.namespace, dataset.name) == (theirs.namespace, theirs.name)


def test_both_ends_of_a_transfer_between_files_have_absolute_names() -> None:
    facts = transfer_facts(TransferJob(Location("/a/x/"), Location("/b/")), None, result())
    (source,), (destination,) = facts["inputs"], facts["outputs"]
    assert (source["namespace"], source["name"]) == ("file", "/a/x")
    assert (destination["namespace"], destination["name"]) == ("file", "/b")


def test_facts_name_both_ends_with_the_plans_regions() -> None:
    job = TransferJob(Location("s3://src/p/"), Location("s3://dst/q/", "aws:own"), MinimizeCost(1))
    facts = transfer_facts(job, PLAN, result())
    assert [(row["name"], row["region"]) for row in facts["inputs"]] == [("p", "aws:a")]
    assert [(row["name"], row["region"]) for row in facts["outputs"]] == [("q", "aws:own")]


def test_facts_have_volume_cost_and_plan() -> None:
    job = TransferJob(Location("s3://src/p/"), Location("s3://dst/q/"))
    facts = transfer_facts(job, PLAN, result())
    assert (facts["objects"], facts["copied"], facts["skipped"], facts["bytes"]) == (4, 3, 1, 1000)
    assert facts["copied_earlier"] == 2
    assert facts["planned_cost"]["total_usd"] == 6.0
    assert facts["gateways"] == "local"
    assert facts["relays"] == ["aws:r"]
    assert facts["edges"][0]["planned_gbps"] == 5.0
    assert facts["edges"][0]["sent_bytes"] == 1000
    assert facts["manifest_uri"] == "s3://dst/m.parquet"


def test_facts_are_plain_json_and_do_not_grow_with_the_objects() -> None:
    job = TransferJob(Location("s3://src/p/"), Location("s3://dst/q/"))
    facts = transfer_facts(job, PLAN, result())
    assert json.loads(json.dumps(facts)) == facts
    assert transfer_facts(job, PLAN, result(failures=50)) == facts
