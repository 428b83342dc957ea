"""Real gateways: a line falls to a tenth, or a relay does not come back, and the plan changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import shaped_lines
from tests.planner.conftest import grid_of

from skyplane_orchestration import planner
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ProvisionFailed
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer import in_flight, learning
from skyplane_orchestration.transfer.fleet_control import FleetControl
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.in_flight import InFlightPlanner, NextPlan

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB = 1 << 20
OBJECTS = 40


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of seconds, and gateways as if they were on machines of their own."""
    for name, value in {
        "WINDOW_S": 4.0,
        "PAUSE_S": 1.0,
        "CHANGE_S": 2.0,
        "LEAST_GAIN_S": 5.0,
    }.items():
        monkeypatch.setattr(in_flight, name, value)
    monkeypatch.setattr(in_flight, "LOCAL", "elsewhere")
    monkeypatch.setattr(learning, "LEAST_S", 1.0)


def moved(
    kit: ClientKit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[dict[tuple[str, str], float], Fleet], object],
    **settings: Any,
) -> tuple[TransferResult, list[Fleet]]:
    """A transfer over the relay that meets a fault after its first bytes; its fleets."""
    direct = kit.SOURCE, kit.SINK
    carried = {direct: 0.1, (kit.SOURCE, kit.RELAY): 0.16, (kit.RELAY, kit.SINK): 0.16}
    grid = grid_of({edge: (gbps, 0.02) for edge, gbps in carried.items()})
    limits, fastest = Limits(instance_limit=1), MaximizeThroughput(max_usd_per_gb=1.0)
    volume_gb = OBJECTS * 5 * MIB / 1e9
    plan = planner.plan(grid, *direct, fastest, volume_gb=volume_gb, limits=limits)
    assert plan.relays == (kit.RELAY,)

    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    bodies = {f"o{number}": os.urandom(5 * MIB) for number in range(OBJECTS)}
    for name, body in bodies.items():
        (source / name).write_bytes(body)
    job = TransferJob(Location(f"{source}/"), Location(f"{target}/"), limits=Limits(chunk_mib=5))
    fleets: list[Fleet] = []

    def on_status(status: TransferStatus) -> None:
        if fault is not None and sum(status.delivered_bytes.values()) > 20 * MIB and todo:
            todo.pop()(carried, fleets[-1])

    todo = [fault]
    monkeypatch.setattr(Client, "grid", grid)
    # A small window: few chunks are under way, and receipts come from the start.
    own = kit.provisioner(gateway_settings={"assembly_mib": 32, **settings})
    client = kit.client("in-flight", provisioner=own)
    with shaped_lines.between_gateways(carried, monkeypatch):
        result = client.run(
            job,
            plan=plan,
            on_status=on_status,
            on_submitted=lambda fleet, _: fleets.append(fleet),
        )
    assert {path.name: path.read_bytes() for path in target.iterdir()} == bodies
    print(*result.warnings, *result.edges, sep="\n")
    return result, fleets


def test_an_edge_that_falls_to_a_tenth_moves_the_transfer_to_another_path(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(carried: dict[tuple[str, str], float], _: Fleet) -> None:
        carried[kit.SOURCE, kit.RELAY] = 0.016

    result, fleets = moved(kit, tmp_path, monkeypatch, slow)
    assert fleets[0].plan.relays == (kit.RELAY,)
    assert fleets[-1].plan.relays == ()
    [told] = [text for text in result.warnings if text.startswith("replanned after ")]
    assert f"{kit.SOURCE} > {kit.RELAY} delivered 0.01" in told
    assert " of 0.16 Gbit/s; now 0.1" in told
    assert told.endswith(f" Gbit/s over {kit.SOURCE} > {kit.SINK}")
    sent = {(edge.src, edge.dst): edge.sent_bytes for edge in result.edges}
    # Nothing is paid twice but what was under way.
    assert sent[kit.SOURCE, kit.SINK] + sent[kit.SOURCE, kit.RELAY] == result.copied_bytes
    assert sent[kit.SOURCE, kit.SINK] > sent[kit.SOURCE, kit.RELAY] > 20 * MIB
    assert result.epoch == 2


def test_a_relay_that_does_not_come_back_is_left_out(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Fleets, fleet: Fleet) -> Fleet:
        raise ProvisionFailed("the region has no capacity")

    def lose(_: dict[tuple[str, str], float], fleet: Fleet) -> None:
        monkeypatch.setattr(Fleets, "restore", refuse)
        kit.kill(fleet, kit.RELAY)

    deadlines = {"ack_deadline_s": 2.0, "stall_deadline_s": 4.0}
    result, fleets = moved(kit, tmp_path, monkeypatch, lose, **deadlines)
    assert fleets[-1].plan.relays == ()
    [told] = [text for text in result.warnings if text.startswith("replanned after ")]
    assert f"the gateways of {kit.RELAY} cannot be replaced: the region has no capacity" in told
    sent = {(edge.src, edge.dst): edge.sent_bytes for edge in result.edges}
    assert sent[kit.SOURCE, kit.SINK] > sent[kit.SOURCE, kit.RELAY] > 20 * MIB


class Killed(BaseException):
    """As if the worker were killed: nothing is cleaned up."""


@pytest.mark.parametrize(
    ("owner", "verb", "relays"),
    [
        (FleetControl, "stop", True),
        (Fleets, "rebuild", False),
        (FleetControl, "take_over", False),
    ],
)
def test_a_worker_that_is_killed_in_the_change_loses_nothing(
    kit: ClientKit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type[Any],
    verb: str,
    relays: bool,
) -> None:
    relayed, direct = kit.relayed(), kit.plan((kit.SOURCE, kit.SINK))
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    bodies = {f"o{number}": os.urandom(5 * MIB) for number in range(12)}
    for name, body in bodies.items():
        (source / name).write_bytes(body)
    job = TransferJob(Location(f"{source}/"), Location(f"{target}/"), bwlimit="30M")
    moments: list[str] = []

    def look(planner: Any, status: TransferStatus) -> NextPlan | None:
        if moments or not any(status.delivered_bytes.values()):
            return None
        moments.append("found")
        plan = replace(direct, replaces=relayed.shape)
        return NextPlan(replace(planner._monitor.fleet, plan=plan), "replanned")

    call = getattr(owner, verb)

    def then_killed(*args: Any, **more: Any) -> Any:
        answer = call(*args, **more)
        if moments == ["found"]:
            moments.append("killed")
            raise Killed
        return answer

    monkeypatch.setattr(InFlightPlanner, "look", look)
    monkeypatch.setattr(owner, verb, then_killed)
    client = kit.client("killed")
    fleet = client.provision(relayed)
    try:
        with pytest.raises(Killed):
            client.transfer(job, fleet)
        # The next try has the document of the first fleet.
        result = kit.client("killed").transfer(job, fleet)
    finally:
        client.teardown(fleet)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == bodies
    assert (result.state, result.copied) == ("succeeded", len(bodies))
    # Its figures are of the paths that the bytes took.
    hops = {(edge.src, edge.dst) for edge in result.edges}
    over_relay = {(kit.SOURCE, kit.RELAY), (kit.RELAY, kit.SINK)}
    assert hops == (over_relay if relays else {(kit.SOURCE, kit.SINK)})
    assert sum(edge.sent_bytes for edge in result.edges if edge.dst == kit.SINK) > 0
