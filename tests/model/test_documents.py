"""Every value that travels: there and back through JSON, and refused when it is broken."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.common.object_filter import ObjectFilter
from skyplane_gateway.common.objects import IF_ABSENT, StoreSpec
from skyplane_gateway.config import GatewayConfig, Route, Topology, TransferSpec
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, RangeOrder, RangeOutcome
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import Fleet, FleetInstance, GatewayHandle
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
    TransferJob,
    objective_from_dict,
    objective_to_dict,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    RefusedLaunch,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.model.result import (
    CostOutcome,
    EdgeOutcome,
    FailedObject,
    TransferResult,
)

A, B = "aws:us-east-1", "gcp:europe-west4"

LOCATION = Location("s3://b/p/", A, "http://127.0.0.1:9000", "env:SRC", {"checksum": "trusted"})
PLAN = TransferPlan(
    src=A,
    dst=B,
    objective={"kind": "deadline", "seconds": 60.0},
    throughput_gbps=5.0,
    promised_gbps=4.5,
    egress_ceiling_usd_per_gb=0.1,
    expected_gbps=5.0,
    volume_gb=1.5,
    transfer_s=2.4,
    provision_s=60.0,
    cost=PlanCost(0.1, 0.2, None, 0.3, 0.2),
    instances={A: InstanceGroup("m5.large", 1, 0.1), B: InstanceGroup("n2-standard-4", 2)},
    edges=(PlanEdge(A, B, 5.0, 64, 5.0, 0.09, "measured", "table"),),
    paths=(PlanPath((A, B), 5.0),),
    binding=("egress",),
    solver=SolverReport("optimal", 0.0, 0.2, 0.01),
    grid=GridReference("shipped", "2024-09-25", "modelled"),
    notes=("a note",),
    objects=5,
    refused=(RefusedLaunch(A, "m5.large", 1, is_quota=True, quota="L-1"),),
    separate_usd_per_gb=0.5,
)
ROUTE = Route(0, (f"{A}/0", f"{B}/0"), (32,), 2.5, dialed_by_downstream=(0,), tree=3)
HANDLES = tuple(
    GatewayHandle(
        f"{region}/0", region, ("127.0.0.1", 4000), ("127.0.0.1", 4001), "ab", {"pid": "7"}
    )
    for region in (A, B)
)
SPEC = TransferSpec(
    StoreSpec("s3", "b", "http://127.0.0.1:9000", "us-east-1", (("checksum", "trusted"),)),
    StoreSpec("file", "/"),
    "p/",
    "q/",
    include=("*.csv",),
    filter=ObjectFilter(("a", "b/c"), "24h", "2026-01-31", "1K", "2.5G"),
)
VALUES: dict[str, Any] = {
    "location": LOCATION,
    "job": TransferJob(
        LOCATION,
        Location("file:///data/"),
        MinimizeCost(3.0),
        include=("*.csv", "*.parquet"),
        conflict="skip",
        limits=Limits(2, {"aws": "m5.large"}, 1, 8),
        policy=Policy(("aws:*",), ("aws:us-gov-*",)),
        volume_gb=1.0,
        objects=7,
        files_from=("a", "b/c"),
        newer_than="24h",
        max_size="2.5G",
    ),
    "plan": PLAN,
    "gateway": HANDLES[0],
    "fleet": Fleet(
        key="ab" * 16,
        generation=1,
        deployment="test",
        provisioner="local",
        plan=PLAN,
        gateways=HANDLES,
        routes=(json.loads(json.dumps(dataclasses.asdict(ROUTE))),),
        host="here/boot",
        provision_s=1.5,
        hard_end_unix_s=4e9,
        instances=(FleetInstance(f"{A}/0", A, "i-0abc", 3e9),),
    ),
    "result": TransferResult(
        transfer_key="cd" * 16,
        epoch=2,
        state="failed",
        source="s3://b/p/",
        destination="file:///data/",
        objects=3,
        copied=1,
        skipped=1,
        failed=1,
        copied_bytes=10,
        seconds=1.5,
        goodput_gbps=0.1,
        planned_gbps=5.0,
        edges=(EdgeOutcome(A, B, 5.0, 0.1, 10),),
        cost=CostOutcome(0.1, 0.2, 0.3),
        failures=(FailedObject("s3://b/p/x", "file:///data/x", "not-found", "it is gone", 1),),
        error="1 of 3 objects failed",
        error_code="objects-failed",
        warnings=("look",),
        estimated_usd=0.7,
    ),
    "gateway configuration": GatewayConfig(
        "a/0", "ab" * 16, "127.0.0.1", "127.0.0.1", "/run/a", {"b/0": "00" * 32}, readers=3
    ),
    "route": ROUTE,
    "topology": Topology(
        (ROUTE,), {h.node: h.data for h in HANDLES}, {h.node: h.control for h in HANDLES}
    ),
    "specification": SPEC,
    "order": ChunkOrder(
        1, 2, 0, "objects", (RangeOrder("k", '"e"', 0, 5, "q/k", IF_ABSENT),), "u", 3
    ),
    "outcome": ChunkOutcome(1, 2, (RangeOutcome(None, '"e"', 7),)),
}

kinds = pytest.mark.parametrize("name", sorted(VALUES))


def document_of(value: Any) -> dict[str, Any]:
    document = dataclasses.asdict(value) if isinstance(value, Route) else value.to_dict()
    read: dict[str, Any] = json.loads(json.dumps(document))
    return read


@kinds
def test_there_and_back(name: str) -> None:
    value = VALUES[name]
    assert type(value).from_dict(document_of(value)) == value


@kinds
def test_it_cannot_be_changed(name: str) -> None:
    value = VALUES[name]
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, getattr(value, field))


#: What stands in a place where it does not belong.
_WRONG: tuple[Any, ...] = (None, [], {}, "x", -1, 1.5, True, [[]], {"x": None}, "[", "http://[")


def mutations(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one place at a time wrong, missing or too much, at every depth."""

    def walk(node: Any, replace: Callable[[Any], Any], place: str) -> Iterator[tuple[str, Any]]:
        for wrong in _WRONG:
            if wrong != node:
                yield f"{place} = {wrong!r}", replace(wrong)
        if isinstance(node, dict):
            for name in node:
                without = {key: node[key] for key in node if key != name}
                yield f"{place} without {name}", replace(without)

                def put(value: Any, name: str = name, node: dict[str, Any] = node) -> Any:
                    return replace({**node, name: value})

                yield from walk(node[name], put, f"{place}.{name}")
            yield f"{place} with more", replace({**node, "more": 1})
        elif isinstance(node, list) and node:
            yield from walk(node[0], lambda value: replace([value, *node[1:]]), f"{place}[0]")

    yield from walk(document, lambda value: value, "")


@kinds
def test_a_broken_document_is_read_or_refused_with_one_clear_error(name: str) -> None:
    value = VALUES[name]
    refused = 0
    for place, broken in mutations(document_of(value)):
        before = copy.deepcopy(broken)
        try:
            again = type(value).from_dict(broken)
        except ConfigurationInvalid:
            refused += 1
        else:
            assert type(again) is type(value), place
            json.dumps(document_of(again))
        assert broken == before, place
    assert refused > 10


@kinds
def test_the_types_of_the_fields_are_those_of_the_original(name: str) -> None:
    """Text where a number belongs is refused, and a list where an object does."""
    value = VALUES[name]
    document = document_of(value)
    for field, found in document.items():
        if field == "schema_version":
            continue
        wrong = "1" if isinstance(found, int | float | bool) else 17
        with pytest.raises(ConfigurationInvalid):
            type(value).from_dict({**document, field: wrong})


@pytest.mark.parametrize("name", ["job", "plan", "fleet", "result"])
@pytest.mark.parametrize("version", [0, 2, None, "1", True, [1]])
def test_another_schema_version_is_refused(name: str, version: Any) -> None:
    value = VALUES[name]
    with pytest.raises(ConfigurationInvalid, match=r"schema_version .*this release reads 1"):
        type(value).from_dict({**document_of(value), "schema_version": version})
    without = document_of(value)
    del without["schema_version"]
    with pytest.raises(ConfigurationInvalid, match="schema_version None"):
        type(value).from_dict(without)


@pytest.mark.parametrize(
    "objective",
    [
        MinimizeCost(2.0, exactly=True),
        MaximizeThroughput(max_usd_per_gb=0.1),
        MaximizeThroughput(max_cost_usd=40.0),
        Deadline(60.0),
    ],
)
def test_objectives(objective: Any) -> None:
    document = json.loads(json.dumps(objective_to_dict(objective)))
    assert objective_from_dict(document) == objective
    refused = 0
    for _, broken in mutations(document):
        try:
            assert isinstance(
                objective_from_dict(broken), MinimizeCost | MaximizeThroughput | Deadline
            )
        except ConfigurationInvalid:
            refused += 1
    assert refused > 10


def test_an_outcome_without_its_error_is_not_a_success() -> None:
    document = document_of(VALUES["outcome"])
    del document["ranges"][0]["error"]
    with pytest.raises(ConfigurationInvalid, match="error"):
        ChunkOutcome.from_dict(document)


def test_an_error_in_an_outcome_keeps_its_leaf() -> None:
    outcome = ChunkOutcome(1, 1, (RangeOutcome(NotFound("gone")),))
    (row,) = ChunkOutcome.from_dict(document_of(outcome)).ranges
    assert isinstance(row.error, NotFound)
    assert row.error.message == "gone"


def test_a_fleet_whose_route_leads_elsewhere_is_refused() -> None:
    document = document_of(VALUES["fleet"])
    document["routes"][0]["nodes"][1] = "aws:eu-west-1/0"
    with pytest.raises(ConfigurationInvalid, match="aws:eu-west-1/0"):
        Fleet.from_dict(document)


def test_the_configuration_does_not_show_its_key() -> None:
    config = VALUES["gateway configuration"]
    assert "0000" not in repr(config)
    with pytest.raises(ConfigurationInvalid) as caught:
        dataclasses.replace(config, hello_keys_hex={"b": "c0ffee" * 4})
    assert "c0ffee" not in str(caught.value)
