"""Events of OpenLineage: datasets by the naming rules, statistics, and our run facet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attr
import pytest
from jsonschema import validate
from tests.lineage.test_facts import PLAN, result

from skyplane_orchestration.lineage.facts import ends_facts, transfer_facts
from skyplane_orchestration.lineage.openlineage import lineage_of
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

JOB = TransferJob(Location("s3://src/p/"), Location("az://account/box/q/"))


def test_both_ends_are_known_at_the_start() -> None:
    found = lineage_of(ends_facts(JOB))
    assert [(row.namespace, row.name) for row in found.inputs] == [("s3://src", "p")]
    assert [(row.namespace, row.name) for row in found.outputs] == [
        ("wasbs://box@account.dfs.core.windows.net", "q")
    ]
    assert found.run_facets == {}
    assert not found.inputs[0].inputFacets


def test_the_end_has_statistics_and_the_plan_beside_the_outcome(repository: Path) -> None:
    found = lineage_of(transfer_facts(JOB, PLAN, result()))
    (output,) = found.outputs
    statistics: Any = (output.outputFacets or {})["outputStatistics"]
    assert (statistics.size, statistics.fileCount) == (1000, 3)
    facet: Any = found.run_facets["skyplane"]
    assert facet.achieved["bytes"] == 1000
    assert facet.plan["relays"] == ["aws:r"]
    schema = json.loads((repository / "docs/reference/skyplane-run-facet.json").read_text())
    validate(json.loads(json.dumps(attr.asdict(facet))), schema)
    assert facet._get_schema() == schema["$id"]


def test_azure_has_the_spelling_of_other_tools_as_well() -> None:
    (output,) = lineage_of(ends_facts(JOB)).outputs
    symlinks: Any = (output.facets or {})["symlinks"]
    assert [(each.namespace, each.name) for each in symlinks.identifiers] == [
        ("wasbs://box@account", "q")
    ]


@pytest.mark.parametrize("url", ["s3://b/", "gs://b/", "file:///srv/data/"])
def test_a_dataset_has_no_schema_of_columns(url: str) -> None:
    (found,) = lineage_of(ends_facts(TransferJob(Location(url), Location(url)))).inputs
    assert set(found.facets or {}) == {"dataSource", "datasetType", "storage"}


def test_a_failure_has_its_error() -> None:
    facet: Any = lineage_of(ends_facts(JOB), "StoreError: closed").run_facets["errorMessage"]
    assert facet.message == "StoreError: closed"
