"""A grid that is wrong on one edge: a transfer over real gateways teaches the next plan."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults import shaped_lines
from tests.planner.conftest import grid_of

from skyplane_orchestration import planner
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer import learning
from skyplane_orchestration.transfer.learning import with_learned_rates

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB = 1 << 20
AMBIENT = CredentialSources()


def test_a_second_plan_uses_what_a_transfer_has_learned(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = kit.SOURCE, kit.SINK
    first, second = (kit.SOURCE, kit.RELAY), (kit.RELAY, kit.SINK)
    carried = {direct: 0.05, first: 0.04, second: 0.08}
    grid = grid_of({edge: (gbps, 0.02) for edge, gbps in {**carried, first: 0.08}.items()})
    limits, fastest = Limits(instance_limit=1), MaximizeThroughput(max_usd_per_gb=1.0)
    plan = planner.plan(grid, *direct, fastest, volume_gb=0.1, limits=limits)
    assert plan.relays == (kit.RELAY,)

    source, target, learned = (tmp_path / name for name in ("in", "out", "learned"))
    source.mkdir()
    target.mkdir()
    for number in range(20):
        (source / f"o{number}").write_bytes(os.urandom(5 * MIB))
    job = TransferJob(Location(f"{source}/"), Location(f"{target}/"), limits=Limits(chunk_mib=5))
    # Long enough to count on a real line takes longer than a test may.
    monkeypatch.setattr(learning, "LEAST_S", 4.0)
    # As if the gateways were on machines of their own: those of one machine teach nothing.
    monkeypatch.setattr(learning, "LOCAL", "elsewhere")
    client = kit.client("learned", learned_grid=learned)
    with shaped_lines.between_gateways(carried, monkeypatch):
        result = client.run(job, plan=plan)

    achieved = {(one.src, one.dst): one for one in result.measured}
    for edge, one in achieved.items():
        print(*edge, f"carries {carried[edge]}, achieved {one.gbps:.4f} for {one.seconds:.1f} s")
    # The relay sends in bursts what it has got, which do not limit the path.
    assert set(achieved) == {first}
    assert achieved[first].modelled_gbps == 0.08
    assert achieved[first].gbps == pytest.approx(0.04, rel=0.05)

    ours = with_learned_rates(grid, str(learned), AMBIENT, time.time())
    again = planner.plan(ours, *direct, fastest, volume_gb=0.1, limits=limits)
    assert again.relays == ()
    assert again.throughput_gbps == pytest.approx(0.05)
    assert "measured here" not in " ".join(again.notes), "its own edge was not measured"
