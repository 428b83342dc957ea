from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)

A, B, R = "aws:us-east-1", "gcp:europe-west4", "azure:eastus"


def make_plan(**changes: Any) -> TransferPlan:
    fields: dict[str, Any] = {
        "src": A,
        "dst": B,
        "objective": {"kind": "minimize-cost", "min_throughput_gbps": 6.0, "exactly": False},
        "throughput_gbps": 6.0,
        "volume_gb": 90.0,
        "transfer_s": 120.0,
        "provision_s": 75.0,
        "cost": PlanCost(8.1, 0.2, None, 8.3, 8.3 / 90),
        "instances": {A: InstanceGroup("m5.large", 2, 0.1), R: InstanceGroup("D4", 1, 0.2)},
        "edges": (PlanEdge(A, R, 6.0, 80, 5.0, 0.09, "measured", "table"),),
        "paths": (PlanPath((A, R, B), 6.0),),
        "binding": ("throughput_floor",),
        "solver": SolverReport("optimal", 0.0, 0.092, 0.1),
        "grid": GridReference("shipped", "2024-09-25", "measured", "table"),
        "notes": ("n",),
    }
    return TransferPlan(**{**fields, **changes})


def test_a_plan_survives_json_and_pickle() -> None:
    plan = make_plan()
    assert TransferPlan.from_dict(json.loads(plan.to_json())) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_document_has_the_keys_that_were_promised() -> None:
    document = make_plan().to_dict()
    assert document["schema_version"] == 1
    assert list(document["cost"]) == [
        "egress_usd",
        "instance_usd",
        "request_usd",
        "total_usd",
        "usd_per_gb",
        "boot_usd",
        "minimum_billing_usd",
        "other_usd",
    ]
    assert set(document["instances"][A]) >= {"type", "count"}
    assert set(document["edges"][0]) >= {
        "src",
        "dst",
        "flow_gbps",
        "connections",
        "capacity_gbps",
        "usd_per_gb",
    }
    assert document["paths"] == [{"regions": [A, R, B], "flow_gbps": 6.0}]
    assert set(document["solver"]) == {"status", "gap", "bound", "solve_s"}
    assert set(document["grid"]) >= {"name", "as_of", "throughput"}


def test_relays_are_all_regions_but_the_ends() -> None:
    assert make_plan().relays == (R,)
    assert make_plan().instance_count == 3


def test_a_plan_inside_one_region_has_no_edge() -> None:
    plan = make_plan(
        dst=A,
        edges=(),
        paths=(PlanPath((A,), 6.0),),
        instances={A: InstanceGroup("m5.large", 1)},
        volume_gb=None,
        transfer_s=None,
        cost=PlanCost(None, None, None, None, 0.01),
    )
    assert plan.relays == ()
    assert TransferPlan.from_dict(json.loads(plan.to_json())) == plan


@pytest.mark.parametrize("missing", ["cost", "edges", "solver", "grid", "paths", "instances"])
def test_an_incomplete_document_is_refused(missing: str) -> None:
    document = make_plan().to_dict()
    del document[missing]
    with pytest.raises(ConfigurationInvalid, match="make the plan again"):
        TransferPlan.from_dict(document)
