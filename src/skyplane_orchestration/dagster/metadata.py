"""The metadata of a transfer asset: of its plan and of its materialization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from skyplane_orchestration.lineage.facts import this_try_facts, transfer_facts
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

Metadata = Mapping[str, dg.MetadataValue[Any]]


def plan_metadata(plan: TransferPlan) -> Metadata:
    """Metadata of the plan op."""
    return {
        "skyplane/planned_gbps": dg.MetadataValue.float(plan.throughput_gbps),
        "skyplane/planned_usd_per_gb": dg.MetadataValue.float(plan.cost.usd_per_gb),
        "skyplane/relays": dg.MetadataValue.text(", ".join(plan.relays) or "none"),
        "skyplane/plan": dg.MetadataValue.json(plan.to_dict()),
    }


def materialization_metadata(
    job: TransferJob, plan: TransferPlan | None, result: TransferResult
) -> Metadata:
    """Metadata of the asset: location, volume, rate and planned cost; plan None: no work."""
    found: dict[str, dg.MetadataValue[Any]] = {
        "dagster/uri": dg.MetadataValue.text(job.destination.url),
        "skyplane/source": dg.MetadataValue.text(job.source.url),
        "skyplane/gateways": dg.MetadataValue.text(where_gateways_run(result.gateways)),
        "skyplane/objects": dg.MetadataValue.int(result.copied),
        "skyplane/copied_earlier": dg.MetadataValue.int(result.copied_earlier),
        "skyplane/skipped": dg.MetadataValue.int(result.skipped),
        "skyplane/failed": dg.MetadataValue.int(result.failed),
        "skyplane/metadata_not_carried": dg.MetadataValue.int(result.metadata_not_carried),
        "skyplane/unfinished": dg.MetadataValue.int(result.unfinished),
        "skyplane/bytes": dg.MetadataValue.int(result.copied_bytes),
        "skyplane/seconds": dg.MetadataValue.float(result.seconds),
        "skyplane/throughput_gbps": dg.MetadataValue.float(result.goodput_gbps),
        "skyplane/planned_egress_cost_usd": dg.MetadataValue.float(result.cost.egress_usd),
        "skyplane/planned_vm_cost_usd": dg.MetadataValue.float(result.cost.instance_usd),
        "skyplane/planned_cost_usd": dg.MetadataValue.float(result.cost.total_usd),
        "skyplane/this_try": dg.MetadataValue.json(this_try_facts(result)),
        "skyplane/facts": dg.MetadataValue.json(transfer_facts(job, plan, result)),
        **(plan_metadata(plan) if plan else {}),
    }
    if job.move:
        found["skyplane/moved"] = dg.MetadataValue.int(result.moved)
    if job.delete:
        found["skyplane/deleted"] = dg.MetadataValue.int(result.deleted)
    if result.manifest_uri:
        found["skyplane/manifest"] = dg.MetadataValue.url(result.manifest_uri)
    return found
