"""A grid that is wrong on one edge: a probe of real gateways finds it, and the plan changes.

The next run plans with what this one has left in a learned grid.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults import shaped_lines
from tests.planner.conftest import grid_of

from skyplane_orchestration import planner
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.grids import InstanceType, load_grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.learning import learn, with_learned_rates

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB = 1 << 20


def test_a_profile_is_a_grid_of_the_rates_of_all_pairs(
    kit: ClientKit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    regions = kit.SOURCE, kit.RELAY, kit.SINK
    pairs = list(permutations(regions, 2))
    carried = dict(zip(pairs, (0.08, 0.1, 0.16, 0.1, 0.08, 0.16), strict=True))
    for name, value in kit.home.environment.items():
        monkeypatch.setenv(name, value)
    out, more = tmp_path / "ours", ("--out", str(tmp_path / "ours"))
    command = ("grid", "profile", *regions, *more, "--run-root", str(kit.home.run_root))
    assert main([*command, "--max-usd", "0.5"]) == 2
    assert "--max-usd is 0.5" in capsys.readouterr().err
    assert not out.exists()
    with shaped_lines.between_gateways(carried, monkeypatch):
        assert main([*command, "--max-usd", "50"]) == 0
    assert "egress $" in capsys.readouterr().err
    assert kit.home.gateways() == []
    found = load_grid(out)
    assert set(found.tags) == set(regions)
    for src, dst in pairs:
        gbps = found.throughput_gbps[found.index_of(src), found.index_of(dst)]
        print(src, dst, f"carries {carried[src, dst]}, profiled {gbps:.4f}")
        assert gbps == pytest.approx(carried[src, dst], rel=0.1)
        assert found.measured[found.index_of(src), found.index_of(dst)]
    assert found.as_of == f"{datetime.now(UTC):%Y-%m-%d}"


def test_a_dear_path_carries_no_more_than_the_ceiling_allows_when_the_cheap_one_is_slow(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct, first, second = (
        (kit.SOURCE, kit.SINK),
        (kit.SOURCE, kit.RELAY),
        (kit.RELAY, kit.SINK),
    )
    modelled = {direct: (0.1, 0.02), first: (0.16, 0.02), second: (0.16, 0.02)}
    types = [InstanceType(cloud, "free", 4, 5.0, 10.0, 64, 0.0, 8) for cloud in ("aws", "gcp")]
    objective = MaximizeThroughput(max_usd_per_gb=0.03)
    grid = grid_of(modelled, types)
    limits = Limits(instance_limit=1)
    plan = planner.plan(grid, *direct, objective, volume_gb=0.1, limits=limits)
    assert {path.regions for path in plan.paths} == {direct, (*first, kit.SINK)}

    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    for number in range(20):
        (source / f"o{number}").write_bytes(os.urandom(5 * MIB))
    job = TransferJob(
        Location(f"{source}/"),
        Location(f"{target}/"),
        objective=objective,
        limits=replace(limits, chunk_mib=5),
    )
    monkeypatch.setattr(Client, "grid", grid)
    with shaped_lines.between_gateways({direct: 0.02, first: 0.16, second: 0.16}, monkeypatch):
        result = kit.client("ceiling").run(job, plan=plan)
    sent = {(edge.src, edge.dst): edge.sent_bytes for edge in result.edges}
    print(sent)
    assert sum(sent[way] for way in (direct, first)) == result.copied_bytes == 100 * MIB
    # The relay's path costs as much more than the ceiling as the direct one less.
    assert sent[first] <= sent[direct]


def test_a_plan_follows_what_its_gateways_have_measured(
    kit: ClientKit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    direct = kit.SOURCE, kit.SINK
    first, second = (kit.SOURCE, kit.RELAY), (kit.RELAY, kit.SINK)
    carried = {direct: 0.1, first: 0.08, second: 0.16}
    modelled = {**carried, first: 0.16}
    grid = grid_of({edge: (gbps, 0.02) for edge, gbps in modelled.items()})
    limits, fastest = Limits(instance_limit=1), MaximizeThroughput(max_usd_per_gb=1.0)
    plan = planner.plan(grid, *direct, fastest, volume_gb=0.26, limits=limits)
    assert plan.relays == (kit.RELAY,)
    assert plan.throughput_gbps == pytest.approx(0.16)

    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    bodies = {f"o{number}": os.urandom(5 * MIB) for number in range(50)}
    for name, body in bodies.items():
        (source / name).write_bytes(body)
    job = TransferJob(
        Location(f"{source}/"),
        Location(f"{target}/"),
        objective=fastest,
        limits=replace(limits, chunk_mib=5),
        probe="always",
    )
    monkeypatch.setattr(Client, "grid", grid)
    client = kit.client("probed")
    with shaped_lines.between_gateways(carried, monkeypatch):
        fleet = client.provision(plan, job=job)
        try:
            # A worker that has lost the fleet's document finds the plan that runs.
            assert client.provision(plan).plan == fleet.plan
            result = client.transfer(job, fleet)
        finally:
            client.teardown(fleet)
    probes = [one for one in result.measured if one.kind == "probed"]
    assert {path.name: path.read_bytes() for path in target.iterdir()} == bodies

    assert {(one.src, one.dst) for one in probes} == set(carried)
    for one in probes:
        print(one.src, one.dst, f"carries {carried[one.src, one.dst]}, probed {one.gbps:.4f}")
    for one in result.measured:
        if one.kind == "achieved":
            print(one.src, one.dst, f"achieved {one.gbps:.4f} in {one.seconds:.1f} s when full")
    for edge in result.edges:
        print(edge)
    print(f"promised {fleet.plan.throughput_gbps:.4f}, goodput {result.goodput_gbps:.4f}")
    # Over the relay, half of what the grid says: less than on the direct path.
    assert fleet.plan.relays == ()
    assert {gateway.region for gateway in fleet.gateways} == set(direct)
    [told] = [record.message for record in caplog.records if "planned again" in record.message]
    assert told.startswith("probed 3 edges in ")
    assert told.endswith("instead of 0.16 Gbit/s")
    [edge] = result.edges
    assert edge.modelled_gbps == 0.1
    assert edge.probed_gbps == pytest.approx(edge.planned_gbps)
    assert result.planned_gbps == fleet.plan.throughput_gbps
    probed = {(one.src, one.dst): one for one in probes}
    assert probed[first].modelled_gbps == 0.16
    assert probed[first].gbps < probed[direct].gbps

    # Without the start and the tail, the transfer was as fast as the probe.
    [achieved] = [one for one in result.measured if one.kind == "achieved"]
    assert (achieved.src, achieved.dst) == direct
    assert achieved.gbps == pytest.approx(probed[direct].gbps, rel=0.05)

    learned, ambient = str(tmp_path / "learned"), CredentialSources()
    assert "one machine" in learn(learned, result, ambient), "only where asked"
    assert learn(learned, result, ambient, include_local=True) == ""
    ours = with_learned_rates(grid, learned, ambient, time.time())
    again = planner.plan(ours, *direct, fastest, volume_gb=0.26, limits=limits)
    assert again.relays == ()
    [learned_edge] = again.edges
    assert learned_edge.capacity_gbps == pytest.approx(probed[direct].gbps, rel=0.05)
    assert any("rates of 1 edge: measured here" in note for note in again.notes)
