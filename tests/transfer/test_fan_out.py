"""Copies to several destinations: refusals, shares of the cost, the view of each transfer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.model.test_documents import PLAN, VALUES
from tests.transfer import samples

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    DestinationsFailed,
    PlanInfeasible,
    QuotaExceeded,
    SkyplaneError,
    StoreUnavailable,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, PlanEdge, PlanPath, PlanTree
from skyplane_orchestration.model.result import CostOutcome, EdgeOutcome, TryOutcome
from skyplane_orchestration.provision.routes import build_routes, node_names
from skyplane_orchestration.transfer import fan_out, planning
from skyplane_orchestration.transfer.fan_out import FanOut, sent_over, shared_costs
from skyplane_orchestration.transfer.run_options import RunOptions

S, R, B, C = "gcp:us-east4", "aws:us-east-2", "aws:eu-west-1", "aws:eu-west-3"
TREE = PlanTree(((S, R), (R, B), (R, C)), 4.0)
WHOLE = replace(
    PLAN,
    src=S,
    dst=B,
    destinations=(B, C),
    trees=(TREE,),
    paths=tuple(PlanPath((S, R, tag), 4.0) for tag in (B, C)),
    instances={tag: InstanceGroup("m5.large", 1, 1.0) for tag in (S, R, B, C)},
    edges=(
        PlanEdge(S, R, 4.0, 64, 5.0, 0.12),
        PlanEdge(R, B, 4.0, 64, 5.0, 0.02),
        PlanEdge(R, C, 4.0, 64, 5.0, 0.02),
    ),
)
GB = 1_000_000_000


def handles() -> tuple[GatewayHandle, ...]:
    return tuple(GatewayHandle(f"{tag}/0", tag, ("h", 1), ("h", 2), "ab") for tag in (S, R, B, C))


FLEET_OF_ALL = replace(
    VALUES["fleet"],
    plan=WHOLE,
    gateways=handles(),
    routes=tuple(route.to_dict() for route in build_routes(WHOLE, node_names(WHOLE))),
    instances=(),
)


def test_routes_follow_the_tree_to_each_destination() -> None:
    routes = build_routes(WHOLE, node_names(WHOLE))
    assert [route.nodes for route in routes] == [
        (f"{S}/0", f"{R}/0", f"{B}/0"),
        (f"{S}/0", f"{R}/0", f"{C}/0"),
    ]
    assert len({route.tree for route in routes}) == 1
    assert routes[0].tree not in {route.number for route in routes}


def test_a_transfer_sees_its_own_destination_of_the_fleet_alone() -> None:
    own = FLEET_OF_ALL.towards(C)
    assert (own.plan.dst, own.plan.ends) == (C, (S, C))
    assert [handle.region for handle in own.sinks] == [C]
    assert set(own.plan.instances) == {S, R, C}
    assert [(edge.src, edge.dst) for edge in own.plan.edges] == [(S, R), (R, C)]
    assert own.built_plan == WHOLE
    assert own.resume_key != FLEET_OF_ALL.resume_key == FLEET_OF_ALL.key


def result_of(region: str) -> Any:
    cost = CostOutcome(egress_usd=0.14, instance_usd=0.3, request_usd=0.0)
    edges = (
        EdgeOutcome(S, R, 4.0, 4.0, GB),
        EdgeOutcome(R, region, 4.0, 4.0, GB),
    )
    return replace(samples.result(), cost=cost, edges=edges, this_try=TryOutcome(cost=cost))


def test_what_a_shared_edge_carried_once_is_paid_once() -> None:
    fleets = {tag: FLEET_OF_ALL.towards(tag) for tag in (B, C)}
    results = {tag: result_of(tag) for tag in (B, C)}
    sent = {(S, R): GB, (R, B): GB, (R, C): GB}
    shared = shared_costs(fleets, results, sent)
    assert sum(one.cost.egress_usd for one in shared.values()) == pytest.approx(0.12 + 0.02 + 0.02)
    # Two instances are shared by two, and one is its own.
    assert shared[B].cost.instance_usd == pytest.approx(0.3 * (0.5 + 0.5 + 1) / 3)
    alone = shared_costs(fleets, results, {hop: 2 * size for hop, size in sent.items()})
    assert alone[C].cost.egress_usd == pytest.approx(0.14)


def test_gateways_count_what_an_edge_carried_on_trees_and_on_routes() -> None:
    rows = {
        f"{S}/0": [
            {"nodes": [f"{S}/0", f"{R}/0"], "frame_bytes": 7},
            {"nodes": [f"{S}/0", f"{R}/0", f"{B}/0"], "frame_bytes": 5},
        ],
        f"{R}/0": [
            {"nodes": [f"{S}/0", f"{R}/0"], "frame_bytes": 100},
            {"nodes": [f"{R}/0", f"{B}/0"], "frame_bytes": 7},
        ],
    }
    assert sent_over(FLEET_OF_ALL, rows) == {(S, R): 12, (R, B): 7}


@pytest.mark.parametrize(
    ("changes", "options", "clue"),
    [
        ([{}, {}], {}, "more than once"),
        ([{"move": True}], {}, "move is for one destination"),
        ([{}], {"manifest": "/m.csv"}, "manifest"),
    ],
)
def test_what_several_destinations_cannot_have(
    changes: list[dict[str, Any]], options: dict[str, Any], clue: str
) -> None:
    jobs = [replace(samples.JOB, **one) for one in changes]
    with pytest.raises(ConfigurationInvalid, match=clue):
        FanOut(None, jobs, RunOptions(**options))  # type: ignore[arg-type]


def test_the_failure_names_each_destination_and_can_be_retried_if_one_can() -> None:
    errors = {"s3://b/": StoreUnavailable("down"), "s3://c/": ConfigurationInvalid("no")}
    error = DestinationsFailed.of({"s3://a/": samples.result()}, errors)
    assert "2 of 3 destinations failed" in error.message
    assert "s3://b/: down" in error.message
    assert not error.is_permanent
    assert Location("s3://a/").url in error.results


#: Two that share a fleet, a second one in a region, and one in the region of the source.
REGIONS = {"s3://b/": B, "s3://c/": C, "s3://second/": B, "s3://near/": S}
ALONE = ["s3://second/", "s3://near/"]


@dataclass
class Lab:
    """Copies that succeed, where no step of those that share a fleet has an error.

    Attributes:
        errors: step -> its error.
        alone: the destinations that were copied to by themselves.
    """

    errors: dict[str, SkyplaneError] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)

    def do(self, step: str, made: Any = None) -> Any:
        if step in self.errors:
            raise self.errors[step]
        return made

    def job_run(self, _: Any, job: TransferJob) -> Any:
        return SimpleNamespace(
            check=lambda: None,
            unchanged=lambda: None,
            require_credentials=lambda plan: self.do("credentials"),
            run=lambda **_: self.copy(job),
        )

    def copy(self, job: TransferJob) -> Any:
        self.alone.append(job.destination.url)
        return samples.result()

    def fan_out(self, *urls: str) -> FanOut:
        fleets = SimpleNamespace(
            provisioner=None,
            teardown=lambda fleet: self.do("teardown"),
            teardown_after_error=lambda fleet: None,
        )
        context = SimpleNamespace(credentials=None, grid=lambda: None, fleets=fleets)
        source = replace(samples.JOB.source, region=S)
        jobs = [TransferJob(source, Location(url, REGIONS[url])) for url in urls]
        return FanOut(cast("Any", context), jobs, RunOptions())


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()

    def transfer(run: FanOut, jobs: list[TransferJob], fleet: Any) -> None:
        made.do("transfer")
        run.results |= {job.destination.url: samples.result() for job in jobs}

    monkeypatch.setattr(fan_out, "JobRun", made.job_run)
    monkeypatch.setattr(planning, "plan_job_to_all", lambda *_: made.do("plan", WHOLE))
    provision = lambda *_, **__: made.do("provision", FLEET_OF_ALL)  # noqa: E731
    monkeypatch.setattr(fan_out, "provision", provision)
    monkeypatch.setattr(FanOut, "_transfer", transfer)
    return made


def test_those_that_share_nothing_follow_by_themselves(lab: Lab) -> None:
    assert list(lab.fan_out(*REGIONS).run()) == list(REGIONS)
    assert lab.alone == ALONE


@pytest.mark.parametrize("step", ["plan", "credentials", "provision", "transfer"])
def test_they_are_tried_also_where_a_shared_fleet_fails(lab: Lab, step: str) -> None:
    error = lab.errors[step] = QuotaExceeded("no more instances")
    with pytest.raises(DestinationsFailed, match="2 of 4 destinations failed") as failed:
        lab.fan_out(*REGIONS).run()
    assert failed.value.errors == {"s3://b/": error, "s3://c/": error}
    assert list(failed.value.results) == lab.alone == ALONE


def test_the_error_of_a_fleet_for_all_is_raised_as_it_is(lab: Lab) -> None:
    lab.errors["plan"] = PlanInfeasible("no path")
    with pytest.raises(PlanInfeasible):
        lab.fan_out("s3://b/", "s3://c/").run()
    assert lab.alone == []


def test_none_is_tried_beside_gateways_that_may_still_run(lab: Lab) -> None:
    """A run by itself would take them for its own fleet, which has the same key."""
    lab.errors["teardown"] = TeardownIncomplete("they may still run")
    with pytest.raises(TeardownIncomplete):
        lab.fan_out(*REGIONS).run()
    assert lab.alone == []
