"""Facts of a transfer as plain data, for asset events and metadata.

Airflow and Dagster report the same facts. Dataset names follow OpenLineage
(openlineage.io/docs/spec/naming, read 2026-11); `openlineage` makes events of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote

from skyplane_gateway.common.schema import encode
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

SCHEMA_VERSION: Final = 1

#: The name of a whole bucket; some lineage backends fail on an empty one.
_WHOLE_BUCKET: Final = "/"

#: Characters that a URI has as they are, beside letters and digits (RFC 3986, `pchar`).
_SAFE_IN_URI: Final = "/:@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One end of a transfer: a bucket (`s3://bucket`) and the key or prefix, `/` for all of it.

    A file has the namespace `file`, and its path as the name.
    """

    namespace: str
    name: str
    uri: str
    region: str

    @property
    def asset_uri(self) -> str:
        """Namespace and name as one URI, for orchestrators that name assets so; all ASCII."""
        root = "file://" if self.namespace == "file" else self.namespace
        return f"{root}/{quote(self.name.strip('/'), safe=_SAFE_IN_URI)}"


def dataset_of(location: Location, region: str = "") -> Dataset:
    """The dataset at a location; `region` is used if the location has none."""
    name = location.key.strip("/")
    return Dataset(
        namespace=_namespace(location),
        name=f"/{name}" if location.kind == "file" else name or _WHOLE_BUCKET,
        uri=location.url,
        region=location.region or region,
    )


def _namespace(location: Location) -> str:
    if location.kind == "file":
        return "file"
    if location.kind == "azure":
        account, _, container = location.bucket.partition("/")
        return f"wasbs://{container}@{account}.dfs.core.windows.net"
    return f"{'gs' if location.kind == 'gcs' else 's3'}://{location.bucket}"


def ends_facts(job: TransferJob, plan: TransferPlan | None = None) -> dict[str, Any]:
    """The inputs and outputs of a transfer, which are known before it begins."""
    src, dst = (plan.src, plan.dst) if plan else ("", "")
    return {
        "inputs": [asdict(dataset_of(job.source, src))],
        "outputs": [asdict(dataset_of(job.destination, dst))],
    }


def transfer_facts(
    job: TransferJob, plan: TransferPlan | None, result: TransferResult
) -> dict[str, Any]:
    """Inputs, outputs, volumes, planned cost, and rates planned and achieved; plan None: no work.

    The facts are JSON data of a few kilobytes for any number of objects.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        **ends_facts(job, plan),
        "transfer_key": result.transfer_key,
        "state": result.state,
        "objects": result.objects,
        "copied": result.copied,
        "copied_earlier": result.copied_earlier,
        "skipped": result.skipped,
        "failed": result.failed,
        "reserved": result.reserved,
        "metadata_not_carried": result.metadata_not_carried,
        "not_carried_by_name": dict(result.not_carried_by_name),
        "unfinished": result.unfinished,
        "bytes": result.copied_bytes,
        "seconds": result.seconds,
        "goodput_gbps": result.goodput_gbps,
        "planned_gbps": result.planned_gbps,
        "drift": result.drift,
        "gateways": result.gateways,
        "planned_cost": result.cost.to_dict(),
        "estimated_usd": result.estimated_usd,
        "this_try": this_try_facts(result),
        "planned_usd_per_gb": plan.cost.usd_per_gb if plan else 0.0,
        "instances": _instances(plan),
        "relays": list(plan.relays) if plan else [],
        "edges": [asdict(edge) for edge in result.edges],
        "grid": asdict(plan.grid) if plan else None,
        "source_digest": result.source_digest,
        "manifest_uri": result.manifest_uri,
        "warnings": list(result.warnings),
    }


#: Facts of transfers to several destinations that add up.
_SUMMED: Final = ("objects", "copied", "skipped", "failed", "unfinished", "bytes")


def facts_of_all(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of a copy to several destinations, from those of its transfers.

    Each output has its own counts and its share of the cost; the rest is of all together.
    """
    first = facts[0]
    cost: Counter[str] = Counter()
    for one in facts:
        cost.update({name: usd for name, usd in one["planned_cost"].items() if name != "other_usd"})
    return {
        **first,
        **{name: sum(one[name] for one in facts) for name in _SUMMED},
        "state": "succeeded" if all(one["state"] == "succeeded" for one in facts) else "failed",
        "seconds": max(one["seconds"] for one in facts),
        "planned_cost": dict(cost),
        "outputs": [
            {**one["outputs"][0], **{name: one[name] for name in _OF_OUTPUT}} for one in facts
        ],
    }


#: What the output of each of several destinations has of its own.
_OF_OUTPUT: Final = ("transfer_key", "state", "copied", "bytes", "planned_cost")


def this_try_facts(result: TransferResult) -> dict[str, Any]:
    """The part of the transfer that this try has done."""
    own = encode(result.this_try)
    return {**own, "planned_cost": own.pop("cost")}


def _instances(plan: TransferPlan | None) -> dict[str, int]:
    groups = plan.instances.items() if plan else ()
    return {region: group.count for region, group in groups}
