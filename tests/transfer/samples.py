"""A job, a plan, fleets and statuses for tests of transfers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.model.result import CostOutcome, FailedObject, TransferResult
from skyplane_orchestration.model.status import TransferStatus

A, R, B = "aws:us-east-1", "azure:eastus", "gcp:europe-west4"
GB = 1_000_000_000
KEY = "ab" * 16

JOB = TransferJob(Location("s3://src/p/", A), Location("s3://dst/q/", B))

#: Two gateways; nothing costs anything.
PLAN = TransferPlan(
    src=A,
    dst=B,
    objective={},
    throughput_gbps=1.0,
    volume_gb=None,
    transfer_s=None,
    provision_s=0.0,
    cost=PlanCost(None, None, None, None, 0.0),
    instances={A: InstanceGroup("process", 1), B: InstanceGroup("process", 1)},
    edges=(),
    paths=(PlanPath((A, B), 1.0),),
    binding=(),
    solver=SolverReport("optimal", 0.0, 0.0, 0.0),
    grid=GridReference("test", "2026-01-01", "measured"),
)

#: A GB over its one edge costs 0.1 USD, and nothing else costs anything.
PRICED_PLAN = replace(PLAN, edges=(PlanEdge(A, B, 1.0, 1, 1.0, 0.1),))


def fleet_of(
    *paths: str, plan: TransferPlan = PLAN, regions: Mapping[str, str] | None = None, **more: Any
) -> Fleet:
    """A fleet of the given paths, each a string of one-letter nodes."""
    names = dict.fromkeys("".join(paths))
    home = ("127.0.0.1", 1), ("127.0.0.1", 2)
    fleet = Fleet(
        key="cd" * 16,
        generation=0,
        deployment="test",
        provisioner="local",
        plan=plan,
        gateways=tuple(
            GatewayHandle(name, (regions or {}).get(name, "local:here"), *home, "")
            for name in names
        ),
        routes=tuple(
            {
                "number": number,
                "nodes": list(path),
                "connections": [1] * (len(path) - 1),
                "share_gbps": 1.0,
                "dialed_by_downstream": [],
            }
            for number, path in enumerate(paths)
        ),
        host="h/b",
        provision_s=0.0,
        hard_end_unix_s=0.0,
    )
    return replace(fleet, **more)


def status(state: str = "running", **changes: Any) -> TransferStatus:
    """A lead's status; one object was copied unless `changes` say otherwise."""
    document: dict[str, Any] = {
        "transfer_key": KEY,
        "epoch": 1,
        "state": state,
        "listed": True,
        "bytes": 1,
        "copied": 1,
        "copied_bytes": 1,
        "skipped": 0,
        "failed": 0,
        "seconds": 1.0,
        "delivered_bytes": {},
        "error": None,
        "failures": [],
        "open_uploads": [],
    }
    document |= changes
    ended = document["copied"] + document["skipped"] + document["failed"]
    return TransferStatus.from_document({"objects": ended, **document})


def result(failed: int = 0, **changes: Any) -> TransferResult:
    """The result of a transfer of 30 objects, so many of which failed."""
    whole = TransferResult(
        transfer_key=KEY,
        epoch=1,
        state="failed" if failed else "succeeded",
        source=JOB.source.url,
        destination=JOB.destination.url,
        objects=30,
        copied=30 - failed,
        skipped=0,
        failed=failed,
        copied_bytes=1000,
        seconds=2.0,
        goodput_gbps=0.5,
        planned_gbps=3.0,
        edges=(),
        cost=CostOutcome(1.0, 2.0, 3.0),
        failures=tuple(
            FailedObject(f"{JOB.source.url}{number}", "d", "not-found", "it is gone", 1)
            for number in range(failed)
        ),
        warnings=("an upload stays open",),
        gateways="local",
    )
    return replace(whole, **changes)
