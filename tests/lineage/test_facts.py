"""Lineage facts: names by OpenLineage's rules, and a document of fixed size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.transfer import samples

from skyplane_orchestration.lineage.facts import dataset_of, facts_of_all, transfer_facts
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, PlanCost, PlanEdge, PlanPath
from skyplane_orchestration.model.result import (
    CostOutcome,
    EdgeOutcome,
    FailedObject,
    TransferResult,
    TryOutcome,
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


#: What two transfers have, and what both of them together have. Both differ in every fact.
OF_BOTH: dict[str, tuple[Any, Any, Any]] = {
    "state": ("succeeded", "failed", "failed"),
    **dict.fromkeys(("objects", "copied", "copied_earlier", "skipped", "failed"), (3, 4, 7)),
    **dict.fromkeys(("reserved", "metadata_not_carried", "unfinished"), (3, 4, 7)),
    "copied_bytes": (3, 4, 7),
    "not_carried_by_name": ({"acl": 1, "tags": 2}, {"tags": 3}, {"acl": 1, "tags": 5}),
    "seconds": (100.0, 200.0, 200.0),
    "goodput_gbps": (4.0, 1.0, 5.0),
    "planned_gbps": (5.0, 2.0, 7.0),
    "gateways": ("aws", "ssh", "aws, ssh"),
    "estimated_usd": (0.5, None, 0.5),
    "warnings": (("a", "b"), ("b", "c"), ["a", "b", "c"]),
}


def test_the_facts_of_several_destinations_count_each() -> None:
    def transfer(number: int) -> dict[str, Any]:
        changes = {name: values[number] for name, values in OF_BOTH.items()}
        cost = CostOutcome(1.0, 2.0, 3.0, {"disk": number + 1.0})
        tried = TryOutcome(2, 700, 50.0 * (number + 1), 1.0, cost)
        shared = EdgeOutcome("aws:a", "aws:r", 5.0, 4.0, 1000 - number)
        own = EdgeOutcome("aws:r", f"aws:b{number}", 5.0, 4.0, 10)
        job = TransferJob(Location("s3://src/"), Location(f"s3://dst{number}/"))
        plan = replace(PLAN, dst=f"aws:b{number}")
        edges = shared, own
        found = result()
        found = replace(found, **changes, cost=cost, this_try=tried, edges=edges)
        return transfer_facts(job, plan, found)

    both = [transfer(0), transfer(1)]
    found = facts_of_all(both)
    for name, (_, _, value) in OF_BOTH.items():
        assert (name, found["bytes" if name == "copied_bytes" else name]) == (name, value)
    assert found["drift"] == both[1]["drift"] == -0.5
    assert found["planned_cost"] == {
        "egress_usd": 2.0,
        "instance_usd": 4.0,
        "request_usd": 6.0,
        "other_usd": {"disk": 3.0},
        "total_usd": 15.0,
    }
    tried = found["this_try"]
    assert (tried["copied"], tried["copied_bytes"], tried["seconds"]) == (4, 1400, 100.0)
    assert "cost" not in tried
    assert found["instances"] == {"aws:a": 1, "aws:b": 1, "aws:r": 1}
    sent = {(row["src"], row["dst"]): row["sent_bytes"] for row in found["edges"]}
    assert sent == {("aws:a", "aws:r"): 1000, ("aws:r", "aws:b0"): 10, ("aws:r", "aws:b1"): 10}
    assert [row["region"] for row in found["outputs"]] == ["aws:b0", "aws:b1"]
    same = "schema_version", "inputs", "grid", "source_digest", "manifest_uri", "relays"
    assert all(found[name] == both[0][name] for name in same)
    # A new fact needs a rule, and a row here.
    checked = {*OF_BOTH, *same, "bytes", "drift", "planned_cost", "this_try", "instances", "edges"}
    assert set(found) - checked == {"outputs", "transfer_key", "planned_usd_per_gb"}


def test_a_destination_that_forwards_is_no_relay() -> None:
    job = TransferJob(Location("s3://src/"), Location("s3://dst/"))
    both = [transfer_facts(job, plan, result()) for plan in (PLAN, replace(PLAN, dst="aws:r"))]
    assert both[0]["relays"] == ["aws:r"]
    assert facts_of_all(both)["relays"] == []


@pytest.mark.parametrize("first", [True, False])
def test_a_destination_without_work_changes_no_plan_of_the_others(first: bool) -> None:
    job = TransferJob(Location("s3://src/"), Location("s3://dst/"))
    copied = transfer_facts(job, PLAN, result())
    unchanged = transfer_facts(job, None, replace(samples.result(), gateways="", edges=()))
    found = facts_of_all([unchanged, copied] if first else [copied, unchanged])
    for name in ("grid", "instances", "relays", "edges", "gateways", "planned_usd_per_gb"):
        assert (name, found[name]) == (name, copied[name])
