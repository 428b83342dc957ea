"""What a finished transfer teaches, what it does not teach, and that it never fails for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.transfer.samples import GB, JOB, PLAN, A, B, R, fleet_of, result, status

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import StoreUnavailable
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.plan import PlanEdge
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.rate_samples import read_samples, read_sent_gb
from skyplane_orchestration.transfer import learning, transfer_run
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials
from skyplane_orchestration.transfer.learning import (
    achieved_rates,
    internet_bytes,
    learn,
    record_sent,
    with_rates,
)
from skyplane_orchestration.transfer.run_options import RunOptions
from skyplane_orchestration.transfer.transfer_monitor import Monitor
from skyplane_orchestration.transfer.transfer_run import TransferRun

NOW_S = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
GBIT = 125_000_000
REGIONS = {"a": A, "c": A, "r": R, "b": B, "d": B}


def row(full_s: float = 30.0, gbps: float = 2.0, number: int = 0, **more: Any) -> dict[str, Any]:
    """What a gateway says of a route that was full for so long, at that rate."""
    size = int(full_s * gbps * GBIT)
    sent = {"number": number, "frame_bytes": size + GBIT}
    return {**sent, "saturated_s": full_s, "saturated_bytes": size, **more}


def fleet(*paths: str, connections: int = 32, **more: Any) -> Fleet:
    plan = replace(PLAN, edges=(PlanEdge(A, B, 5.0, 64, 5.0, 0.1), PlanEdge(A, R, 5, 64, 5, 0.1)))
    made = fleet_of(*paths, plan=replace(plan, **more), regions=REGIONS, provisioner="aws")
    routes = tuple(
        {**one, "connections": [connections] * (len(one["nodes"]) - 1)} for one in made.routes
    )
    return replace(made, routes=routes)


def rates(of: Fleet, **rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {(one.src, one.dst): one.gbps for one in achieved_rates(of, rows, NOW_S)}


def test_an_edge_that_was_full_is_measured() -> None:
    (found,) = achieved_rates(fleet("ab"), {"a": [row()], "b": [row(0.0)]}, NOW_S)
    assert found == EdgeMeasurement(A, B, 2.0, 32, 1, 30.0, 60 * GBIT, NOW_S, "achieved", 5.0)


def test_the_paths_over_an_edge_are_added() -> None:
    of = fleet("ab", "cd")
    (found,) = achieved_rates(of, {"a": [row(30.0, 2.0)], "c": [row(20.0, 1.0, 1)]}, NOW_S)
    assert (found.gbps, found.connections, found.instances) == (3.0, 64, 2)
    assert found.seconds == 30.0


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        pytest.param(fleet("ab"), {"a": [row(9.0)]}, id="not long enough"),
        pytest.param(fleet("ab"), {"a": [row(0.0)]}, id="a store was the bottleneck"),
        pytest.param(fleet("ab"), {}, id="its gateway does not answer"),
        pytest.param(
            fleet("ab"), {"a": [{"number": 0, "frame_bytes": 9}]}, id="a gateway of last release"
        ),
        pytest.param(fleet("ac"), {"a": [row()]}, id="inside a region"),
        pytest.param(
            fleet("ab", "cd"), {"a": [row()], "c": [row(2.0, number=1)]}, id="one path was not full"
        ),
        pytest.param(
            fleet("ab", binding=(f"egress_limit {A}",)), {"a": [row()]}, id="it shares an instance"
        ),
    ],
)
def test_edges_that_teach_nothing(of: Fleet, rows: dict[str, list[dict[str, Any]]]) -> None:
    assert rates(of, **rows) == {}


def test_of_a_path_with_a_relay_the_last_full_hop_is_the_bottleneck() -> None:
    of = fleet("arb")
    assert rates(of, a=[row()], r=[row(28.0)]) == {(R, B): 2.0}
    assert rates(of, a=[row()], r=[row(3.0)]) == {(A, R): 2.0}
    # The relay sends in bursts what it has got; that edge did not limit the path.
    assert rates(of, a=[row(60.0)], r=[row(20.0)]) == {(A, R): 2.0}


def test_a_path_that_carried_nothing_hides_no_other() -> None:
    unused = row(0.0, number=1, frame_bytes=0)
    assert rates(fleet("ab", "cd"), a=[row()], c=[unused]) == {(A, B): 2.0}


def test_a_limit_of_an_instance_counts_only_where_edges_share_it() -> None:
    alone = fleet("ab", binding=(f"egress_limit {A}",), edges=(PlanEdge(A, B, 5, 64, 5, 0.1),))
    assert rates(alone, a=[row()]) == {(A, B): 2.0}


# ---------------------------------------------------------------- at the end of a transfer


@dataclass
class Control:
    asked: int = 0
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"a": [row()]})

    def route_rows(self) -> dict[str, list[dict[str, Any]]]:
        self.asked += 1
        return self.rows


def ended(
    given: TransferResult,
    learned_grid: str | None = None,
    *,
    job: TransferJob = JOB,
    control: Control | None = None,
    is_abandoned: bool = False,
) -> TransferResult:
    monitor = SimpleNamespace(
        request=SimpleNamespace(job=job),
        fleet=fleet("ab"),
        control=control or Control(),
        is_abandoned=is_abandoned,
        context=SimpleNamespace(
            clock=Clock(wall=lambda: NOW_S),
            learned_grid=learned_grid,
            credentials=CredentialSources(),
        ),
    )
    return with_rates(cast(Monitor, monitor), given)


LONG = result(seconds=300.0, goodput_gbps=2.9, gateways="aws", warnings=())


def read(place: Path) -> list[EdgeMeasurement]:
    return read_samples(str(place), CredentialSources(), now_unix_s=NOW_S)


def test_a_second_plan_uses_what_a_transfer_has_learned(tmp_path: Path) -> None:
    assert ended(LONG, str(tmp_path)).warnings == ()
    (sample,) = read(tmp_path)
    assert (sample.src, sample.dst, sample.gbps, sample.kind) == (A, B, 2.0, "achieved")

    clock = Clock(wall=lambda: NOW_S)
    second = Client(learned_grid=tmp_path, clock=clock).grid
    place = second.index_of(A), second.index_of(B)
    assert second.throughput_gbps[place] == 4.0  # 2 Gbit/s over 32 connections
    assert Client(clock=clock).grid.throughput_gbps[place] != 4.0


@pytest.mark.parametrize(
    ("given", "job"),
    [
        pytest.param(replace(LONG, gateways="local"), JOB, id="local"),
        pytest.param(replace(LONG, gateways="in-process"), JOB, id="inside this process"),
        pytest.param(LONG, replace(JOB, bwlimit="10M"), id="limited by the user"),
        pytest.param(replace(LONG, seconds=9.0), JOB, id="too short"),
    ],
)
def test_transfers_that_teach_nothing(
    given: TransferResult, job: TransferJob, tmp_path: Path
) -> None:
    assert ended(given, str(tmp_path), job=job).warnings == ()
    assert read(tmp_path) == []


def test_a_short_and_an_abandoned_transfer_ask_no_gateway() -> None:
    control = Control()
    ended(replace(LONG, seconds=2.0), control=control)
    ended(LONG, control=control, is_abandoned=True)
    assert control.asked == 0


def test_a_probe_that_two_transfers_of_a_fleet_report_counts_once(tmp_path: Path) -> None:
    probe = EdgeMeasurement(A, B, 4.0, 64, 1, 3.0, 12 * GBIT, NOW_S, "probed")
    for gbps in (2.0, 3.0):
        control = Control(rows={"a": [row(gbps=gbps)]})
        assert ended(replace(LONG, measured=(probe,)), str(tmp_path), control=control).measured
    found = sorted((one.kind, one.gbps) for one in read(tmp_path))
    assert found == [("achieved", 2.0), ("achieved", 3.0), ("probed", 4.0)]


def test_without_the_setting_the_result_still_has_the_rates(tmp_path: Path) -> None:
    measured = ended(replace(LONG, gateways="local")).measured
    assert [one.gbps for one in measured] == [2.0]
    given = replace(LONG, gateways="local", measured=measured)
    document = TransferResult.from_dict(given.to_dict())
    assert learn(str(tmp_path), document, CredentialSources()) == (
        "its gateways were processes of one machine"
    )
    assert learn(str(tmp_path), document, CredentialSources(), include_local=True) == ""
    assert read(tmp_path) == list(measured)


def test_samples_that_cannot_be_written_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "samples").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING):
        found = ended(LONG, str(tmp_path))
    assert found.succeeded
    (warning,) = found.warnings
    assert "not in the learned grid" in warning
    assert "not in the learned grid" in caplog.text


def test_a_learned_grid_that_cannot_be_read_stops_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("the bucket is down")

    monkeypatch.setattr(learning, "read_samples", refuse)
    values = Client(learned_grid=tmp_path).grid.edges()
    why = "planned without the learned grid, which cannot be read: the bucket is down"
    assert values.remark == why
    assert not values.learned.any()


# ---------------------------------------------------------------- drift


@pytest.mark.parametrize(
    ("goodput_gbps", "says"),
    [
        (1.5, "achieved 1.50 Gbit/s, 50% less than the 3.00 Gbit/s that the plan promised"),
        (4.5, "achieved 4.50 Gbit/s, 50% more than the 3.00 Gbit/s that the plan promised"),
        (2.4, ""),
        (3.6, ""),
    ],
)
def test_drift_is_said_in_result_and_log(
    goodput_gbps: float, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = ended(replace(LONG, goodput_gbps=goodput_gbps))
    assert found.has_drifted == bool(says)
    assert [one.startswith(says) for one in found.warnings] == [True] * bool(says)
    assert (says in caplog.text) == bool(says) or not says
    if says:
        assert f"the limit was {A} -> {B} at 2.00 Gbit/s" in found.warnings[0]


def test_where_no_edge_was_full_drift_names_none() -> None:
    found = ended(replace(LONG, goodput_gbps=1.0), control=Control(rows={"a": [row(0.0)]}))
    assert found.warnings[0].endswith("no edge was the limit for long")


@pytest.mark.parametrize(
    "incomparable",
    [
        {"seconds": 59.0},
        {"gateways": "local"},
        {"gateways": "in-process"},
        {"gateways": ""},
        {"server_side": 1},
        {"planned_gbps": 0.0},
    ],
)
def test_rates_that_cannot_be_compared_have_no_drift(incomparable: dict[str, Any]) -> None:
    drifted = replace(LONG, goodput_gbps=0.1)
    assert drifted.has_drifted
    assert replace(drifted, **incomparable).drift is None


# ---------------------------------------------------------------- what was sent

#: Over A -> B and A -> R -> B, all between clouds; every region has a billed instance.
BILLED = replace(
    fleet("ab", "arb", edges=(PlanEdge(A, B, 1, 1, 1, 0.1), PlanEdge(A, R, 1, 1, 1, 0.1),
                              PlanEdge(R, B, 1, 1, 1, 0.1))),
    instances=tuple(FleetInstance(tag, tag, tag, 0.0, usd_per_hour=0.1) for tag in (A, R, B)),
)  # fmt: skip
DELIVERED = status(delivered_bytes={0: 2 * GB, 1: 3 * GB})


def with_edges(**changes: Any) -> Fleet:
    edges = tuple(replace(one, **changes) for one in BILLED.plan.edges)
    return replace(BILLED, plan=replace(BILLED.plan, edges=edges))


def test_every_hop_between_clouds_sends_to_the_internet() -> None:
    sent = {(A, B): 2 * GB, (A, R): 3 * GB, (R, B): 3 * GB}
    assert internet_bytes(BILLED, DELIVERED) == sent


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(replace(BILLED, instances=()), id="machines that nobody bills"),
        pytest.param(with_edges(price="override"), id="agreed prices"),
        pytest.param(with_edges(price="table"), id="a price table"),
    ],
)
def test_edges_without_tiers_send_nothing(of: Fleet) -> None:
    assert internet_bytes(of, DELIVERED) == {}


def test_a_copy_inside_a_cloud_sends_nothing() -> None:
    west = "aws:us-west-2"
    inside = fleet_of(
        "aw",
        plan=replace(PLAN, edges=(PlanEdge(A, west, 1, 1, 1, 0.02),)),
        regions={"a": A, "w": west},
        instances=BILLED.instances,
    )
    assert internet_bytes(inside, DELIVERED) == {}


def recorded(learned_grid: Path | None, *epochs: tuple[Fleet, dict[str, Any]]) -> list[str]:
    """The warnings of a transfer that has ended after these statuses."""
    clock = Clock(wall=lambda: NOW_S)
    budget = Budget(None, clock)
    for of, given in epochs:
        budget.record(of, status(**given))
    context = SimpleNamespace(
        clock=clock,
        learned_grid=None if learned_grid is None else str(learned_grid),
        credentials=CredentialSources(),
    )
    monitor = SimpleNamespace(budget=budget, context=context, warnings=[])
    record_sent(cast(Monitor, monitor))
    return cast("list[str]", monitor.warnings)


def sent_gb(place: Path) -> dict[str, float]:
    return read_sent_gb(str(place), CredentialSources(), NOW_S)


def test_the_next_plan_knows_what_a_failed_transfer_has_sent(tmp_path: Path) -> None:
    failed = {"state": "failed", "error": {"code": "x"}, "delivered_bytes": {0: 60_000 * GB}}
    assert recorded(tmp_path, (BILLED, failed)) == []
    client = Client(learned_grid=tmp_path, clock=Clock(wall=lambda: NOW_S))
    job = replace(JOB, source=replace(JOB.source, region=A), objective=MinimizeCost(1.0))
    found = client.plan(replace(job, volume_gb=1.0), may_assume=True)
    assert "60,000 GB sent from aws this month, by the learned grid" in found.notes


def test_each_epoch_counts_once_and_each_fleet_from_one(tmp_path: Path) -> None:
    first = (BILLED, {"delivered_bytes": {0: 1 * GB}})
    second = (BILLED, {"epoch": 2, "delivered_bytes": {0: 2 * GB}})
    recorded(tmp_path, first, second)
    # Another process has followed the second one only, and a retry has another fleet.
    recorded(tmp_path, second)
    assert sent_gb(tmp_path) == {"aws": 3.0}
    recorded(tmp_path, (replace(BILLED, hard_end_unix_s=9.0), {"delivered_bytes": {0: 1 * GB}}))
    assert sent_gb(tmp_path) == {"aws": 4.0}


def test_a_run_whose_conclusion_fails_has_still_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(wall=lambda: NOW_S)
    context = SimpleNamespace(
        clock=clock, learned_grid=str(tmp_path), credentials=CredentialSources(), fleets=None
    )

    class Followed(SimpleNamespace):
        def __enter__(self) -> Followed:
            return self

        def __exit__(self, *error: object) -> None: ...

        def run(self) -> TransferStatus:
            last = status("succeeded", delivered_bytes={0: GB})
            self.budget.record(BILLED, last)
            return last

    def refuse(*_: object) -> None:
        raise StoreUnavailable("the manifest cannot be written")

    followed = Followed(budget=Budget(None, clock), context=context, warnings=[])
    monkeypatch.setattr(transfer_run, "Monitor", lambda *_, **__: followed)
    monkeypatch.setattr(transfer_run, "finalize", refuse)
    request = TransferRequest("ab" * 16, JOB, SentCredentials(CredentialSources()))
    unused = cast(Any, None)
    run = TransferRun(request, BILLED, cast(Any, context), RunOptions(), unused, unused)
    with pytest.raises(StoreUnavailable):
        run.wait(SubmittedTransfer("ab" * 16, 1, "a", joined=False))
    assert sent_gb(tmp_path) == {"aws": 1.0}


def test_without_the_setting_nothing_is_written_of_what_was_sent() -> None:
    assert recorded(None, (BILLED, {"delivered_bytes": {0: GB}})) == []


def test_what_was_sent_and_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sent").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING):
        (warning,) = recorded(tmp_path, (BILLED, {"delivered_bytes": {0: GB}}))
    assert warning.startswith("what this transfer has sent is not in the learned grid: ")
    assert warning in caplog.text
