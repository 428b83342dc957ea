"""Plans are judged by what measured rates let their own connections and instances carry."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import regret
from bench.regret import NOTHING, Delivered, Judge, Verdict, cases_of, delivered, missed
from bench.report import Case

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import MaximizeThroughput
from skyplane_orchestration.planner import plan

SRC, RELAY, OTHER, DST = "aws:us-east-1", "azure:eastus", "azure:westus", "gcp:us-east1"
CLOUDS = ("aws", "azure", "gcp")


def write_rates(directory: Path, seed: int | None) -> Path:
    """Fifteen shipped regions with rates as modelled, or each off by up to a third."""
    shipped = load_grid()
    chooser = random.Random(seed)
    rows = ["src,dst,gbps"]
    for src, dst in itertools.permutations(shipped.tags[::9], 2):
        rate = shipped.throughput_gbps[shipped.index_of(src), shipped.index_of(dst)]
        rows.append(f"{src},{dst},{rate if seed is None else rate * chooser.uniform(0.67, 1.33)}")
    directory.mkdir()
    (directory / "throughput.csv").write_text("\n".join(rows), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """A slow edge and two ways round it; egress costs .1 on every edge, an instance nothing."""
    directory = tmp_path_factory.mktemp("square")
    tags = (SRC, RELAY, OTHER, DST)
    fast = {(SRC, RELAY): 4, (RELAY, DST): 4, (SRC, OTHER): 3, (OTHER, DST): 3}
    pairs = list(itertools.permutations(tags, 2))
    (directory / "throughput.csv").write_text(
        "src,dst,gbps\n" + "".join(f"{s},{t},{fast.get((s, t), 0.5)}\n" for s, t in pairs),
        encoding="utf-8",
    )
    (directory / "price.csv").write_text(
        "src,dst,usd_per_gb\n" + "".join(f"{s},{t},0.1\n" for s, t in pairs), encoding="utf-8"
    )
    (directory / "limits.csv").write_text(
        "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
        "instance_limit\n" + "".join(f"{cloud},any,4,5,5,64,0,1\n" for cloud in CLOUDS),
        encoding="utf-8",
    )
    return load_grid(directory)


def with_rate(grid: Grid, src: str, dst: str, gbps: float) -> Grid:
    rates = grid.throughput_gbps.copy()
    rates[grid.index_of(src), grid.index_of(dst)] = gbps
    return grid.with_edges(throughput_gbps=rates)


def verdict(**changed: object) -> Verdict:
    """A pair whose plans deliver what they should."""
    good = Delivered(4.0, 0.1)
    made = Verdict(
        src=SRC,
        dst=DST,
        ceiling_usd_per_gb=0.1,
        floor_gbps=4.0,
        best_gbps=4.0,
        direct_gbps=4.0,
        expected_gbps=4.0,
        promised_gbps=4.0,
        unprobed=good,
        probed=good,
        floor=good,
        floor_probed=good,
        floor_today=good,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def test_rates_as_planned_deliver_what_was_planned(square: Grid) -> None:
    made = plan(square, SRC, DST, MaximizeThroughput(max_usd_per_gb=1.0))
    real = delivered(made, square)
    assert real.gbps == pytest.approx(made.throughput_gbps)
    assert real.usd_per_gb == pytest.approx(made.cost.usd_per_gb)


def test_an_overrated_edge_keeps_its_connections_and_its_price(square: Grid) -> None:
    made = plan(square, SRC, DST, MaximizeThroughput(max_usd_per_gb=1.0))
    edge = next(edge for edge in made.edges if (edge.src, edge.dst) == (RELAY, DST))
    slow = with_rate(square, RELAY, DST, 1.0)
    real = delivered(made, slow)
    lost = edge.flow_gbps - 1.0 * edge.connections / 64
    assert real.gbps == pytest.approx(made.throughput_gbps - lost, abs=1e-3)


def test_what_is_above_the_ceiling_is_left_out(square: Grid) -> None:
    quick = with_rate(square, SRC, DST, 2.0)
    # Some by a relay, for .2, and some directly, for .1.
    made = plan(quick, SRC, DST, MaximizeThroughput(max_usd_per_gb=0.16))
    (straight,) = (edge.flow_gbps for edge in made.edges if (edge.src, edge.dst) == (SRC, DST))
    assert delivered(made, quick).usd_per_gb == pytest.approx(0.16, rel=0.01)
    # The direct edge is slower than planned: a lead holds the relay to its share of all bytes.
    slow = with_rate(quick, SRC, DST, 1.0)
    free = delivered(replace(made, egress_ceiling_usd_per_gb=None), slow)
    kept = delivered(made, slow)
    assert free.usd_per_gb > 0.17
    assert kept.usd_per_gb == pytest.approx(0.16)
    assert kept.gbps == pytest.approx(straight / 2 / 0.4, rel=0.05)
    assert delivered(replace(made, egress_ceiling_usd_per_gb=0.05), slow) == NOTHING


def test_the_instances_of_a_plan_are_paid_whatever_flows(square: Grid) -> None:
    types = tuple(replace(one, usd_per_hour=36.0) for one in square.types)
    priced = replace(with_rate(square, SRC, DST, 2.0), types=types)
    made = plan(priced, SRC, DST, MaximizeThroughput(max_usd_per_gb=0.2))
    real = delivered(made, with_rate(priced, SRC, DST, 1.0))
    # Two instances for a cent a second; 8 Gbit are a GB.
    assert real.gbps == pytest.approx(1.0)
    assert real.usd_per_gb == pytest.approx(0.1 + 2 * 0.01 * 8)


def test_modelled_rates_that_are_right_miss_nothing(tmp_path: Path) -> None:
    measured = load_grid(write_rates(tmp_path / "right", None))
    found = regret.verdicts(measured, 3)
    for one in found:
        # A path that is worth less than .35 % is none, and a ceiling is met to .1 %.
        assert one.unprobed.gbps == pytest.approx(one.best_gbps, rel=5e-3)
    told = {case.case: case.value for case in cases_of("right", found)}
    for row in ("slower than direct, not probed", "floor missed", "ceiling broken, not probed"):
        assert told[f"right, {row}"] == 0.0


def test_a_probe_stays_on_the_instances_of_the_plan(tmp_path: Path) -> None:
    judge = Judge.of(load_grid(write_rates(tmp_path / "wrong", 1)))
    src, dst = judge.tags[0], judge.tags[9]
    objective = MaximizeThroughput(max_usd_per_gb=0.2)
    made = plan(judge.modelled, src, dst, objective, limits=regret.ONE_INSTANCE)
    again = judge.plan_probed(made, random.Random(1))
    assert again.instances.items() <= made.instances.items()
    # The noise of the probe shows in the rates on which the plan was made again.
    assert any(
        edge.capacity_gbps
        != judge.truth.throughput_gbps[
            judge.truth.index_of(edge.src), judge.truth.index_of(edge.dst)
        ]
        for edge in again.edges
    )


@pytest.mark.parametrize(
    ("changed", "row", "words"),
    [
        ({"floor": NOTHING}, "floor missed", "refused"),
        ({"floor_probed": Delivered(3.9, 0.1)}, "floor missed, probed", "3.90 of 4.00 Gbit/s"),
        ({"probed": Delivered(4.0, 0.102)}, "ceiling broken, probed", "+2.0%"),
        ({"probed": Delivered(3.95, 0.1)}, "slower than direct, probed", "3.95 of 4.00 Gbit/s"),
    ],
)
def test_a_miss_is_told_with_its_pair(changed: dict[str, object], row: str, words: str) -> None:
    cases = {case.case: case for case in cases_of("g", [verdict(), verdict(**changed)])}
    case = cases[f"g, {row}"]
    assert case.value == 50.0
    assert case.against == f"aws>gcp 1 of 2; {SRC} > {DST} {words}"
    assert not case.holds


def test_a_figure_below_its_floor_is_seen() -> None:
    cases = cases_of(
        "g", [verdict(probed=Delivered(3.0, 0.1), direct_gbps=3.0, promised_gbps=5.0)] * 3
    )
    low = {case.case for case in cases if not case.holds}
    assert low == {
        "g, real over best with the ceiling kept, probed: median",
        "g, real over best with the ceiling kept, probed: tenth percentile",
        "g, real over promised, not probed: tenth percentile",
    }
    assert all(case.holds for case in cases_of("g", [verdict()] * 3))
    assert missed("row", [verdict()], lambda _: "").against is None


def test_every_directory_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directories = [str(write_rates(tmp_path / name, 1)) for name in ("first", "second")]
    status = regret.main([*directories, "--pairs", "1", "--json"])
    results = json.loads(capsys.readouterr().out)["results"]
    for name in ("first", "second"):
        assert sum(result["case"].startswith(f"{name}, ") for result in results) == 15
    low = [result for result in results if not Case(**result).holds]
    assert status == (1 if low else 0)
    assert np.isfinite([result["value"] for result in results]).all()
