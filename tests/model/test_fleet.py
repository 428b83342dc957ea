from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanPath,
    SolverReport,
    TransferPlan,
)

HERE = "local:here"
PLAN = TransferPlan(
    HERE,
    HERE,
    {},
    1.0,
    None,
    None,
    0.0,
    PlanCost(None, None, None, None, 0.0),
    {HERE: InstanceGroup("process", 1)},
    (),
    (PlanPath((HERE,), 1.0),),
    (),
    SolverReport("optimal", 0.0, 0.0, 0.0),
    GridReference("test", "2024-01-01", "measured"),
)


def fleet_of(*paths: str) -> Fleet:
    names = list(dict.fromkeys("".join(paths)))
    routes: list[dict[str, Any]] = [
        {
            "number": number,
            "nodes": list(path),
            "connections": [1] * (len(path) - 1),
            "share_gbps": 1.0,
            "dialed_by_downstream": [],
        }
        for number, path in enumerate(paths)
    ]
    return Fleet(
        key="ab" * 16,
        generation=0,
        deployment="test",
        provisioner="local",
        plan=PLAN,
        gateways=tuple(
            GatewayHandle(name, HERE, ("127.0.0.1", 1), ("127.0.0.1", 2), "") for name in names
        ),
        routes=tuple(routes),
        host="h/b",
        provision_s=0.0,
        hard_end_unix_s=0.0,
    )


@pytest.mark.parametrize(
    ("paths", "sources", "sinks"),
    [
        (["ab"], "a", "b"),
        (["arb", "ab"], "a", "b"),
        (["arb", "crd"], "ac", "bd"),
        (["a"], "a", "a"),
    ],
)
def test_sources_and_sinks(paths: list[str], sources: str, sinks: str) -> None:
    fleet = fleet_of(*paths)
    assert "".join(handle.node for handle in fleet.sources) == sources
    assert "".join(handle.node for handle in fleet.sinks) == sinks


def test_a_gateway_by_name() -> None:
    fleet = fleet_of("ab")
    assert fleet.gateway("b") is fleet.gateways[1]
    with pytest.raises(KeyError):
        fleet.gateway("z")


def test_a_fleet_holds_no_secret() -> None:
    """It travels through XCom: names, addresses and fingerprints only."""
    assert set(fleet_of("ab").to_dict()["gateways"][0]) == {
        "node",
        "region",
        "control",
        "data",
        "fingerprint",
        "details",
    }
