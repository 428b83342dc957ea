"""The regret of a plan is judged by measurements that its model has not seen."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from bench import regret
from bench.regret import Job, Judged

from skyplane_orchestration.grids import Grid, load_grid

SRC, RELAY, OTHER, DST = "aws:us-east-1", "azure:eastus", "azure:westus", "gcp:us-east1"
CLOUDS = ("aws", "azure", "gcp")


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Fifteen shipped regions, measured: rates as modelled, each off by up to a third."""
    directory = tmp_path_factory.mktemp("pretended")
    shipped = load_grid()
    tags = shipped.tags[::9]
    chooser = random.Random(1)
    rates, rtts = ["src,dst,gbps"], ["src,dst,rtt_ms"]
    for src, dst in itertools.permutations(tags, 2):
        edge = shipped.index_of(src), shipped.index_of(dst)
        rates.append(f"{src},{dst},{shipped.throughput_gbps[edge] * chooser.uniform(0.67, 1.33)}")
        rtts.append(f"{src},{dst},{shipped.rtt_ms[edge]}")
    (directory / "throughput.csv").write_text("\n".join(rates), encoding="utf-8")
    (directory / "latency.csv").write_text("\n".join(rtts), encoding="utf-8")
    return load_grid(directory)


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """A slow edge and two ways round it; egress costs the same everywhere, an instance nothing."""
    directory = tmp_path_factory.mktemp("square")
    tags = (SRC, RELAY, OTHER, DST)
    fast = {(SRC, RELAY): 4, (RELAY, DST): 4, (SRC, OTHER): 3, (OTHER, DST): 3}
    pairs = [(src, dst) for src in tags for dst in tags if src != dst]
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


def test_the_jobs_are_those_of_the_seed(pretended: Grid) -> None:
    jobs = regret.seeded_jobs(pretended.tags, 20)
    assert jobs[:7] == regret.seeded_jobs(pretended.tags, 7)
    assert all(job.src != job.dst for job in jobs)
    low, high = regret.CEILING_SHARES
    assert all(low <= job.ceiling_share <= high for job in jobs)
    assert len({job.src for job in jobs}) > 5


def test_what_was_measured_at_the_ends_changes_nothing(pretended: Grid) -> None:
    ends = (pretended.tags[3], pretended.tags[8])
    touched = np.isin(pretended.tags, ends)[:, None] | np.isin(pretended.tags, ends)[None, :]
    otherwise = pretended.with_edges(
        throughput_gbps=np.where(touched, 0.1, pretended.throughput_gbps),
        rtt_ms=np.where(touched, 1e3, pretended.rtt_ms),
    )
    held_out = regret.held_out_grid(pretended, *ends)
    np.testing.assert_array_equal(
        held_out.throughput_gbps, regret.held_out_grid(otherwise, *ends).throughput_gbps
    )
    # Had the first end been known, the answer would be another: the test can fail.
    other = regret.held_out_grid(otherwise, ends[1])
    assert not np.array_equal(held_out.throughput_gbps, other.throughput_gbps)


def test_a_perfect_model_regrets_nothing(pretended: Grid) -> None:
    jobs = regret.seeded_jobs(pretended.tags, 12)
    found = regret.regrets(pretended, jobs, lambda measured, *_: measured)
    assert [one.share for one in found] == pytest.approx([1.0] * 12, abs=1e-6)
    for one in found:
        assert one.reached_gbps == pytest.approx(one.planned_gbps, rel=1e-6)


def test_a_relay_that_is_overrated_costs_the_flow_that_another_would_have_carried(
    square: Grid,
) -> None:
    truth = with_rate(square, RELAY, DST, 1.2)
    judged = regret.judge(truth, square, Job(SRC, DST, 10.0))
    assert judged.planned_gbps == pytest.approx(4.0)
    assert judged.reached_gbps == pytest.approx(1.2)
    assert judged.best_gbps == pytest.approx(3.0, abs=0.2)
    assert judged.share < 0.45


def test_a_relay_that_is_underrated_costs_what_it_would_have_added(square: Grid) -> None:
    doubted = with_rate(square, RELAY, DST, 0.6)
    judged = regret.judge(square, doubted, Job(SRC, DST, 10.0))
    assert judged.reached_gbps == pytest.approx(judged.planned_gbps, rel=0.1)
    assert judged.best_gbps == pytest.approx(4.0)
    assert judged.share < 0.85


def test_the_figures_are_the_median_and_the_tenth_percentile(
    pretended: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(SRC, DST, 1.0)
    made = [Judged(job, 1.0, share, 1.0) for share in np.linspace(0.0, 1.0, regret.PAIRS)]
    monkeypatch.setattr(regret, "regrets", lambda _, jobs: made[: len(jobs)])
    median, tenth = regret.regret_cases(pretended)
    assert median.value == pytest.approx(0.5)
    assert tenth.value == pytest.approx(0.1)
    assert all(case.holds for case in regret.regret_cases(pretended, 3))
    assert not median.holds
    assert not tenth.holds
    assert (median.goal, tenth.goal) == (0.98, 0.88)


@pytest.mark.long
def test_on_january_no_plan_beats_the_best(shared_dir: Path) -> None:
    measured = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    jobs = regret.seeded_jobs(measured.tags, 4)
    for judged in regret.regrets(measured, jobs):
        assert 0.2 < judged.share <= 1.0
