"""Which part of a plan is used up, by hand on plans of a few edges."""

from __future__ import annotations

import pytest
from bench.paper.utilisation import (
    CONNECTIONS,
    DESTINATION_VM,
    RELAY_LINK,
    RELAY_VM,
    SOURCE_LINK,
    SOURCE_VM,
    full_locations,
)

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    SolverReport,
    TransferPlan,
)

SRC, RELAY, DST, OTHER = "azure:eastus", "azure:westus", "gcp:us-east1", "azure:westus2"
LIMITS = (
    "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
    "instance_limit",
    "azure,machine,32,16,12,64,1,8",
    "gcp,machine,32,7,10,64,1,8",
)

#: (tail, head): (flow, what the grid measured)
Edges = dict[tuple[str, str], tuple[float, float]]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    directory = tmp_path_factory.mktemp("limits")
    (directory / "regions.csv").write_text("\n".join(("region", SRC, RELAY, DST, OTHER)))
    (directory / "limits.csv").write_text("\n".join(LIMITS))
    return load_grid(directory)


def plan_of(edges: Edges, counts: dict[str, int] | None = None) -> TransferPlan:
    tags = {tag for edge in edges for tag in edge}
    return TransferPlan(
        src=SRC,
        dst=DST,
        objective={},
        throughput_gbps=sum(flow for (tail, _), (flow, _) in edges.items() if tail == SRC),
        volume_gb=None,
        transfer_s=None,
        provision_s=0.0,
        cost=PlanCost(None, None, None, None, 0.1),
        instances={tag: InstanceGroup("machine", (counts or {}).get(tag, 1)) for tag in tags},
        edges=tuple(
            PlanEdge(tail, head, flow, 64, capacity, 0.1)
            for (tail, head), (flow, capacity) in edges.items()
        ),
        paths=(),
        binding=(),
        solver=SolverReport("optimal", 0.0, 0.0, 0.0),
        grid=GridReference("by hand", "", "measured"),
    )


@pytest.mark.parametrize(
    ("edges", "counts", "expected"),
    [
        ({(SRC, DST): (3.0, 3.0)}, {}, {SOURCE_LINK}),
        ({(SRC, DST): (2.98, 3.0)}, {}, {SOURCE_LINK}),
        ({(SRC, DST): (2.96, 3.0)}, {}, set()),
        ({(SRC, DST): (3.0, 3.0)}, {SRC: 2, DST: 2}, set()),
        ({(SRC, DST): (6.0, 3.0)}, {SRC: 2, DST: 3}, {SOURCE_LINK}),
        ({(SRC, DST): (10.0, 15.0)}, {}, {DESTINATION_VM}),
        ({(SRC, DST): (16.0, 20.0)}, {DST: 2}, {SOURCE_VM}),
        ({(SRC, RELAY): (9.0, 13.0), (RELAY, DST): (9.0, 9.0)}, {}, {RELAY_LINK}),
        ({(SRC, RELAY): (9.0, 9.0), (RELAY, DST): (9.0, 11.0)}, {}, {SOURCE_LINK}),
        ({(SRC, RELAY): (12.0, 13.0), (RELAY, DST): (12.0, 13.0)}, {DST: 2}, {RELAY_VM}),
    ],
)
def test_a_location_is_full_from_99_percent(
    grid: Grid, edges: Edges, counts: dict[str, int], expected: set[str]
) -> None:
    assert set(full_locations(plan_of(edges, counts), grid)) == expected


def test_connections_that_are_spread_count_where_nothing_else_is_full(grid: Grid) -> None:
    # Half of the source's 64 connections on each link, each at its full rate.
    spread: Edges = {
        (SRC, DST): (2.0, 4.0),
        (SRC, RELAY): (3.0, 6.0),
        (RELAY, DST): (3.0, 8.0),
    }
    assert full_locations(plan_of(spread), grid) == (CONNECTIONS,)
    spread[SRC, RELAY] = (3.0, 7.0)
    assert full_locations(plan_of(spread), grid) == ()


def test_several_locations_may_be_full_at_once(grid: Grid) -> None:
    edges: Edges = {(SRC, OTHER): (12.0, 12.0), (OTHER, DST): (12.0, 12.0)}
    expected = (SOURCE_LINK, RELAY_VM, RELAY_LINK)
    assert full_locations(plan_of(edges, {DST: 2, SRC: 1}), grid) == expected
