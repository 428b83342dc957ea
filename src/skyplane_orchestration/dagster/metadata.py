"""The metadata of a transfer asset, of its plan and of its materialization, and data versions."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from skyplane_orchestration import planner
from skyplane_orchestration.dagster.checks import COUNTS
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.lineage.facts import this_try_facts, transfer_facts
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan
from skyplane_orchestration.model.result import EdgeOutcome, TransferResult

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client

#: Plain values are of Dagster's own types for text and numbers.
Metadata = Mapping[str, dg.MetadataValue[Any] | str | int | float]

_Row = Mapping[str, str | int | float]

#: Most rows of a table of objects.
_MOST_ROWS: Final = 10


def plan_metadata(plan: TransferPlan) -> Metadata:
    """Metadata of the plan op."""
    return {**_plan_summary(plan), "skyplane/plan": dg.MetadataValue.json(plan.to_dict())}


def _plan_summary(plan: TransferPlan) -> Metadata:
    promised = plan.promised_gbps
    return {
        "skyplane/planned_gbps": plan.throughput_gbps,
        **({} if promised is None else {"skyplane/promised_gbps": promised}),
        "skyplane/planned_usd_per_gb": plan.cost.usd_per_gb,
        "skyplane/relays": ", ".join(plan.relays) or "none",
        "skyplane/plan_paths": dg.MetadataValue.md(plan_markdown(plan)),
        # Of pictures, Dagster's page shows only images of Markdown, also those with a data URL.
        "skyplane/plan_picture": dg.MetadataValue.md(plan_image_markdown(plan)),
    }


def materialization_metadata(
    job: TransferJob, plan: TransferPlan | None, result: TransferResult
) -> Metadata:
    """Metadata of the asset: location, volume, rate and planned cost; plan None: no work.

    Dagster's page keeps their order, so the long documents are the last.
    """
    found: dict[str, dg.MetadataValue[Any] | str | int | float] = {
        "dagster/uri": job.destination.url,
        "skyplane/source": job.source.url,
        **(_plan_summary(plan) if plan else {}),
        "skyplane/gateways": where_gateways_run(result.gateways),
        **{f"skyplane/{name}": getattr(result, name) for name in COUNTS},
        "skyplane/copied_earlier": result.copied_earlier,
        "skyplane/metadata_not_carried": result.metadata_not_carried,
        "skyplane/bytes": result.copied_bytes,
        "skyplane/seconds": result.seconds,
        "skyplane/throughput_gbps": result.goodput_gbps,
        "skyplane/planned_egress_cost_usd": result.cost.egress_usd,
        "skyplane/planned_vm_cost_usd": result.cost.instance_usd,
        "skyplane/planned_other_cost_usd": sum(result.cost.other_usd.values()),
        "skyplane/planned_cost_usd": result.cost.total_usd,
    }
    found |= _tables(plan, result)
    if job.move:
        found["skyplane/moved"] = result.moved
    if job.delete:
        found["skyplane/deleted"] = result.deleted
    if result.manifest_uri:
        found["skyplane/manifest"] = dg.MetadataValue.url(result.manifest_uri)
    found["skyplane/this_try"] = dg.MetadataValue.json(this_try_facts(result))
    found["skyplane/facts"] = dg.MetadataValue.json(transfer_facts(job, plan, result))
    if plan is not None:
        found["skyplane/plan"] = dg.MetadataValue.json(plan.to_dict())
    return found


def _tables(plan: TransferPlan | None, result: TransferResult) -> Metadata:
    """Tables of the edges and of objects; those without a row are left out."""
    planned = {(edge.src, edge.dst): edge for edge in (plan.edges if plan else ())}
    edges = [_edge_row(edge, planned.get((edge.src, edge.dst))) for edge in result.edges]
    largest: list[_Row] = [
        {"source": one.source, "destination": one.destination, "bytes": one.size_bytes}
        for one in result.largest[:_MOST_ROWS]
    ]
    failed: list[_Row] = [
        {"source": one.source, "code": one.code, "reason": one.reason, "attempts": one.attempts}
        for one in result.failures[:_MOST_ROWS]
    ]
    tables = {"edges": edges, "largest_objects": largest, "failed_objects": failed}
    return {f"skyplane/{name}": _table(rows) for name, rows in tables.items() if rows}


def _edge_row(edge: EdgeOutcome, planned: PlanEdge | None) -> _Row:
    """An edge of the plan that was carried out, which may be another than the first one."""
    row = {
        "from": edge.src,
        "to": edge.dst,
        "modelled_gbps": edge.modelled_gbps,
        "probed_gbps": edge.probed_gbps,
        "planned_gbps": edge.planned_gbps,
        "achieved_gbps": edge.achieved_gbps,
        "connections": planned.connections if planned else None,
        "usd_per_gb": planned.usd_per_gb if planned else None,
    }
    return {name: "" if value is None else value for name, value in row.items()}


def _table(rows: Sequence[_Row]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows])


def with_manifest(client: Client, job: TransferJob, result: TransferResult) -> TransferResult:
    """The result with a digest of what the manifest of the destination says, where there is one.

    That is the digest of the source, unless other objects have come there, or some have no row.
    """
    if not (job.keeps_manifest and result.source_digest):
        return result
    try:
        digest = client.manifest(job.destination, manifest_at=job.manifest_at).source_digest
    except SkyplaneError:  # There is none, or it cannot be read.
        return result
    if digest == result.source_digest:
        return result
    both = f"{result.source_digest}\n{digest}".encode()
    return replace(result, source_digest=hashlib.sha256(both).hexdigest())


def data_version_of(results: Sequence[TransferResult]) -> dg.DataVersion | None:
    """The data version of a copy: the digest of its source, as this run has listed it.

    None where an object was not copied or the listing did not end; Dagster then makes a version
    that no other run has. Dagster gives all partitions of one run the same version, so several
    results have a common one.
    """
    digests = [result.source_digest for result in results]
    if not all(digests) or any(result.failed or result.unfinished for result in results):
        return None
    if len(digests) == 1:
        return dg.DataVersion(digests[0])
    return dg.DataVersion(hashlib.sha256("\n".join(digests).encode()).hexdigest())


#: Characters of the bar of the widest path.
_BAR: Final = 16


def plan_markdown(plan: TransferPlan) -> str:
    """Rate, price and instances, then the paths with bars for their rates."""
    most = max(path.flow_gbps for path in plan.paths)
    bars = ["█" * max(1, round(_BAR * path.flow_gbps / most)) for path in plan.paths]
    paths = [
        f"{path.flow_gbps:6.2f} Gbit/s {bar:<{_BAR}} {' → '.join(path.regions)}"
        for path, bar in zip(plan.paths, bars, strict=True)
    ]
    return "\n".join([f"**{plan.in_words}**", "", "```text", *paths, "```"])


def plan_image_markdown(plan: TransferPlan) -> str:
    """The picture of a plan, of a few kilobytes, as an image in Markdown."""
    data = b64encode(planner.plan_svg(plan).encode()).decode()
    return f"![plan from {plan.src} to {plan.dst}](data:image/svg+xml;base64,{data})"
