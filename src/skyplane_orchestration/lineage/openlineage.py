"""OpenLineage datasets and facets of a transfer, from its facts.

Names: openlineage.io/docs/spec/naming, read 2026-11. The schema of the run facet is
docs/reference/skyplane-run-facet.json. This module needs `openlineage-python`; nothing imports it
before an event is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import attr
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    dataset_type_dataset,
    datasource_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    storage_dataset,
    symlinks_dataset,
)

InputStatistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
OutputStatistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet

#: Prefix of a namespace -> the layer that holds the objects.
_LAYERS: Final = {"s3://": "s3", "gs://": "gcs", "wasbs://": "azure"}

#: Airflow's own transfers name Azure containers without this.
_AZURE_SUFFIX: Final = ".dfs.core.windows.net"


@attr.define
class SkyplaneRunFacet(RunFacet):
    """What was planned and what came of it; see docs/reference/skyplane-run-facet.json."""

    transferKey: str
    state: str
    gateways: str
    plan: dict[str, Any]
    predicted: dict[str, Any]
    achieved: dict[str, Any]
    cost: dict[str, Any]

    @staticmethod
    def _get_schema() -> str:
        return "urn:skyplane-orchestration:1-0-0:SkyplaneRunFacet"


@dataclass(frozen=True)
class TransferLineage:
    """The parts of an OpenLineage event."""

    inputs: list[InputDataset]
    outputs: list[OutputDataset]
    run_facets: dict[str, RunFacet] = field(default_factory=dict)
    job_facets: dict[str, JobFacet] = field(default_factory=dict)


def lineage_of(facts: Mapping[str, Any], error: str = "") -> TransferLineage:
    """The lineage of a transfer.

    Args:
        facts: `transfer_facts`, or only its `inputs` and `outputs` at the start.
        error: why the transfer failed.
    """
    run_facets: dict[str, RunFacet] = {}
    if "state" in facts:
        cost = dict(facts["planned_cost"])
        run_facets["skyplane"] = SkyplaneRunFacet(
            transferKey=facts["transfer_key"],
            state=facts["state"],
            gateways=facts["gateways"],
            plan={name: facts[name] for name in ("relays", "instances", "grid", "edges")},
            predicted={"gbps": facts["planned_gbps"], "usd": facts["estimated_usd"]},
            achieved={
                "gbps": facts["goodput_gbps"],
                "seconds": facts["seconds"],
                "bytes": facts["bytes"],
                "objects": facts["copied"],
                "failed": facts["failed"],
                "usd": cost["total_usd"],
            },
            cost=cost,
        )
    if error:
        run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON")
    return TransferLineage(
        [_input(row, facts) for row in facts["inputs"]],
        [_output(row, facts) for row in facts["outputs"]],
        run_facets,
        {"jobType": job_type_job.JobTypeJobFacet("BATCH", "SKYPLANE", "TRANSFER")},
    )


def _input(row: Mapping[str, Any], facts: Mapping[str, Any]) -> InputDataset:
    dataset = InputDataset(row["namespace"], row["name"], facets=_dataset_facets(row))
    if "bytes" in facts:
        # Several outputs have the same objects.
        most: Mapping[str, Any] = max(facts["outputs"], key=lambda one: one.get("bytes", 0))
        own = {**facts, **most}
        dataset.inputFacets = {
            "inputStatistics": InputStatistics(size=own["bytes"], fileCount=own["copied"])
        }
    return dataset


def _output(row: Mapping[str, Any], facts: Mapping[str, Any]) -> OutputDataset:
    dataset = OutputDataset(row["namespace"], row["name"], facets=_dataset_facets(row))
    own = {**facts, **row}
    if "bytes" in own:
        dataset.outputFacets = {
            "outputStatistics": OutputStatistics(size=own["bytes"], fileCount=own["copied"])
        }
    return dataset


def _dataset_facets(row: Mapping[str, Any]) -> dict[str, DatasetFacet]:
    namespace, name = row["namespace"], row["name"]
    layer = next(
        (layer for prefix, layer in _LAYERS.items() if namespace.startswith(prefix)), "file"
    )
    facets: dict[str, DatasetFacet] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(namespace, row["uri"]),
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("FILE"),
        "storage": storage_dataset.StorageDatasetFacet(layer),
    }
    if namespace.endswith(_AZURE_SUFFIX):
        short = namespace.removesuffix(_AZURE_SUFFIX)
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(
            [symlinks_dataset.Identifier(short, name, "FILE")]
        )
    return facets
