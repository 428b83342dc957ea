"""Facts of a transfer as plain data, for asset events and metadata.

Airflow and Dagster report the same facts. Dataset names follow OpenLineage
(openlineage.io/docs/spec/naming, read 2026-11); `openlineage` makes events of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote

from skyplane_gateway.common.schema import encode
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

SCHEMA_VERSION: Final = 1

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
        # The name of a whole bucket; some lineage backends fail on an empty one.
        name=f"/{name}" if location.kind == "file" else name or "/",
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
        **{name: getattr(result, name) for name in _OF_RESULT},
        "not_carried_by_name": dict(result.not_carried_by_name),
        "bytes": result.copied_bytes,
        "planned_cost": result.cost.to_dict(),
        "this_try": this_try_facts(result),
        "planned_usd_per_gb": plan.cost.usd_per_gb if plan else 0.0,
        "instances": {tag: one.count for tag, one in plan.instances.items()} if plan else {},
        "relays": list(plan.relays) if plan else [],
        "edges": [asdict(edge) for edge in result.edges],
        "grid": asdict(plan.grid) if plan else None,
        "warnings": list(result.warnings),
    }


#: Facts that a result has under the same name.
_OF_RESULT: Final = (
    *("transfer_key", "state", "gateways", "source_digest", "manifest_uri"),
    *("objects", "copied", "copied_earlier", "skipped", "failed", "unfinished", "reserved"),
    *("metadata_not_carried", "seconds", "goodput_gbps", "planned_gbps", "drift", "estimated_usd"),
)


def facts_of_all(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of a copy to several destinations, from those of its transfers.

    One that failed without a result has its ends, a state and no counts; one at least has all.
    Counts, rates and costs are sums, and seconds those of the slowest. A region or an edge that
    several use counts once, as of the transfer that used it most. Each output has its own counts
    and its share of the cost.
    """
    outputs = [
        {**one["outputs"][0], **{name: one[name] for name in _OF_OUTPUT if name in one}}
        for one in facts
    ]
    # A transfer without a plan does not know all regions.
    found = _together("", sorted(facts, key=lambda one: not one.get("grid")))
    ends = {row["region"] for row in outputs}
    found["relays"] = [tag for tag in found["relays"] if tag not in ends]
    keys = [one["transfer_key"] for one in facts if "transfer_key" in one]
    return {**found, "transfer_key": keys[0], "outputs": outputs}


#: What the output of each of several destinations has of its own.
_OF_OUTPUT: Final = ("transfer_key", "state", "copied", "bytes", "planned_cost")

#: Facts that are the same for all destinations, or of which the first stands for all.
_OF_FIRST: Final = frozenset(
    ["schema_version", "inputs", "outputs", "transfer_key", "grid", "source_digest", "manifest_uri"]
)


def _together(name: str, values: Sequence[Any]) -> Any:
    """One fact of all transfers, from that of each; see `facts_of_all`."""
    known = [value for value in values if value not in (None, "")] or values
    first = known[0]
    if name in _OF_FIRST or first is None:
        return first
    if name == "state":
        return "succeeded" if set(known) == {"succeeded"} else "failed"
    if name == "edges":
        rows = sorted(chain.from_iterable(known), key=itemgetter("sent_bytes"))
        return list({(row["src"], row["dst"]): row for row in rows}.values())
    if isinstance(first, list):
        return list(dict.fromkeys(chain.from_iterable(known)))
    if isinstance(first, str):
        return ", ".join(dict.fromkeys(known))
    if isinstance(first, Mapping):
        own = name if name == "instances" else ""
        names = dict.fromkeys(chain.from_iterable(known))
        return {
            key: _together(own or key, [one[key] for one in known if key in one]) for key in names
        }
    return {"seconds": max, "instances": max, "drift": min}.get(name, sum)(known)


def this_try_facts(result: TransferResult) -> dict[str, Any]:
    """The part of the transfer that this try has done."""
    own = encode(result.this_try)
    return {"planned_cost": own.pop("cost"), **own}
