"""The paper's figures on a grid with known answers, and Fig. 1 on the measured grid."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from bench.paper import evaluation
from bench.paper.__main__ import main
from bench.paper.ablation import ablation
from bench.paper.bottlenecks import bottlenecks
from bench.paper.budgets import STEP, route
from bench.paper.causes import (
    PRIVATE,
    RECEIVED,
    SLOW,
    THROTTLE,
    THROTTLE_RECEIVED,
    OtherReadings,
    other_readings,
)
from bench.paper.document import PAGE
from bench.paper.instances import instances
from bench.paper.motivation import motivation
from bench.paper.readings import PAPER_GBIT, Readings, chain_gbps, read_measurements
from bench.paper.ron import CHEAP, FAST, RON, comparison
from bench.paper.sweep import PairResult, Sweep, pair_result, sweep
from bench.paper.utilisation import RELAY_LINK, SOURCE_LINK, SOURCE_VM

from skyplane_orchestration.errors import GridInvalid

SRC, RELAY, DST = "azure:eastus", "azure:japaneast", "aws:ap-northeast-1"
#: All regions that a figure names.
NAMED = (
    SRC,
    RELAY,
    DST,
    "azure:canadacentral",
    "azure:westus2",
    "gcp:asia-northeast1",
    "azure:westus",
    "aws:eu-west-1",
    "gcp:asia-east1",
    "aws:sa-east-1",
    "aws:af-south-1",
    "aws:ap-southeast-2",
)
_CODES = ("US", "JP", "JP", "CA", "US", "JP", "US", "IE", "TW", "BR", "ZA", "AU")
COUNTRIES = dict(zip(NAMED, _CODES, strict=True))
LIMITS = (
    "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
    "instance_limit",
    "aws,machine,32,5,10,64,0,8",
    "gcp,machine,32,7,16,64,0,8",
    "azure,machine,32,16,16,64,0,8",
)


def write_grid(
    directory: Path, tags: tuple[str, ...], rates: dict[tuple[str, str], float], price: float = 0.1
) -> Path:
    """A grid whose senders count `rates` (2**30 bit/s; 1 where not given) and receivers half.

    Instances are free. Every edge costs `price`, those between two regions of Azure half.
    """
    regions = [f"{tag},city,{COUNTRIES[tag]},0,0" for tag in tags]
    throughput, prices = ["src,dst,gbps,sent_gbps"], ["src,dst,usd_per_gb"]
    for src, dst in permutations(tags, 2):
        sent = rates.get((src, dst), 1.0)
        throughput.append(f"{src},{dst},{sent / 2},{sent * PAPER_GBIT}")
        inside = src.startswith("azure:") and dst.startswith("azure:")
        prices.append(f"{src},{dst},{price / 2 if inside else price}")
    for name, lines in (
        ("regions.csv", ["region,city,country,latitude,longitude", *regions]),
        ("throughput.csv", throughput),
        ("price.csv", prices),
        ("limits.csv", LIMITS),
        ("grid.json", [json.dumps({"name": "by-hand", "as_of": "2022-01-29"})]),
    ):
        (directory / name).write_text("\n".join(lines), encoding="utf-8")
    return directory


#: Direct 2, and 6 over the relay: three times as much for one and a half times the price.
RATES = {(SRC, DST): 2.0, (SRC, RELAY): 6.0, (RELAY, DST): 6.0}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_grid(tmp_path_factory.mktemp("three"), (SRC, RELAY, DST), RATES)


@pytest.fixture(scope="module")
def readings(three: Path) -> Readings:
    return read_measurements(three)


@pytest.fixture(scope="module")
def result(readings: Readings) -> PairResult:
    return pair_result(readings, SRC, DST)


def test_the_two_readings_differ_in_unit_and_in_who_counted(readings: Readings) -> None:
    assert chain_gbps(readings.paper, (SRC, DST)) == pytest.approx(2.0)
    assert chain_gbps(readings.received, (SRC, DST)) == pytest.approx(1.0)
    assert chain_gbps(readings.paper, (SRC, RELAY, DST)) == pytest.approx(6.0)


def test_a_grid_without_the_senders_column_is_refused(tmp_path: Path) -> None:
    write_grid(tmp_path, (SRC, RELAY, DST), RATES)
    lines = (tmp_path / "throughput.csv").read_text().splitlines()
    (tmp_path / "throughput.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    with pytest.raises(GridInvalid, match="sent_gbps"):
        read_measurements(tmp_path)


def test_one_pair_by_hand(result: PairResult) -> None:
    assert result.direct_gbps == pytest.approx(2.0)
    assert result.overlay_gbps == pytest.approx(0.9995 * 6.0, rel=1e-4)
    assert result.overlay_bound_gbps == pytest.approx(6.0, rel=1e-4)
    assert (result.direct_usd_per_gb, result.overlay_usd_per_gb) == pytest.approx(
        (0.1, 0.15), rel=1e-3
    )
    assert result.relays == 1
    # A share y over the relay: 0.1 + 0.05 y <= 0.12, and all connections (1 - y) / 2 + y / 6.
    assert result.within["1.2"] == pytest.approx(1 / (0.6 / 2 + 0.4 / 6), rel=1e-4)
    assert result.within["1.5"] == pytest.approx(0.9995 * 6.0, rel=1e-4)
    # Two instances over three regions are two thirds in each.
    assert result.two_instances_gbps == pytest.approx(4.0, rel=1e-4)
    assert (result.received_direct_gbps, result.received_overlay_gbps) == pytest.approx(
        (1.0, 3.0), rel=1e-4
    )
    assert result.direct_full == (SOURCE_LINK,)
    assert result.overlay_full == (SOURCE_LINK, RELAY_LINK)


def test_other_readings_by_hand(readings: Readings, tmp_path: Path) -> None:
    found = other_readings(readings, SRC, DST).rates
    # Table 2 measured 1.71, and the relay carries 6 alone.
    assert found[SLOW] == pytest.approx((1.71, 6.0), rel=1e-4)
    src, relay, dst = "gcp:asia-east1", "gcp:asia-northeast1", "aws:sa-east-1"
    rates = {(src, dst): 5.0, (src, relay): 9.0, (relay, dst): 9.0}
    two = read_measurements(write_grid(tmp_path, (src, relay, dst), rates))
    found = other_readings(two, src, dst).rates
    # Seven leave the cloud at the relay, with 7/9 of all connections; the others carry 5 directly.
    assert found[THROTTLE] == pytest.approx((5.0, 7.0 + 5 * 2 / 9), rel=1e-4)
    assert found[PRIVATE] == pytest.approx(found[THROTTLE], rel=1e-4)
    assert found[THROTTLE_RECEIVED] == pytest.approx((2.5, 4.5), rel=1e-4)
    assert found[SLOW] == pytest.approx((5.0, 7.0), rel=1e-4)


def test_nothing_is_computed_twice_and_a_line_cut_short_is_computed_again(
    readings: Readings, three: Path, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []

    def counted(_readings: Readings, src: str, dst: str) -> PairResult:
        asked.append((src, dst))
        return replace(stand_in, src=src, dst=dst)

    stand_in = pair_result(readings, SRC, DST)
    first = sweep(PairResult, counted, readings, three, tmp_path)
    assert len(first.results) == len(asked) == 6
    assert sweep(PairResult, counted, readings, three, tmp_path) == first
    assert len(asked) == 6
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text()[:-10])
    assert sweep(PairResult, counted, readings, three, tmp_path) == first
    assert asked[6:] == [asked[5]]
    sweep(PairResult, counted, readings, three, tmp_path, fresh=True)
    assert len(asked) == 13


def made(stand_in: PairResult, src: str, dst: str, direct: float, overlay: float) -> PairResult:
    return replace(
        stand_in,
        src=src,
        dst=dst,
        direct_gbps=direct,
        overlay_gbps=overlay,
        overlay_bound_gbps=overlay,
        received_direct_gbps=direct,
        received_overlay_gbps=overlay,
        two_instances_gbps=direct,
        within={"1.2": direct, "1.5": overlay},
    )


def test_the_ablation_by_cloud_pair(result: PairResult) -> None:
    found = ablation(
        [
            made(result, SRC, RELAY, 2.0, 2.0),
            made(result, RELAY, SRC, 2.0, 8.0),
            replace(made(result, SRC, DST, 4.0, 5.0), overlay_bound_gbps=5.05),
        ]
    )
    across, inside = found.cloud_pairs
    assert (inside.src_cloud, inside.dst_cloud, inside.pairs) == ("azure", "azure", 2)
    assert (across.src_cloud, across.dst_cloud, across.pairs) == ("azure", "aws", 1)
    assert inside.speedup == pytest.approx(2.0)
    assert inside.within == pytest.approx({"1.2": 1.0, "1.5": 2.0})
    assert inside.faster == 0.5
    assert (inside.direct_median, inside.overlay_median, inside.overlay_most) == (2.0, 5.0, 8.0)
    assert inside.direct_share == pytest.approx(0.625)
    assert found.every.speedup == pytest.approx((1.0 * 4.0 * 1.25) ** (1 / 3))
    assert found.worst_gap == pytest.approx(0.01)


def test_shares_of_bottlenecks(result: PairResult) -> None:
    still = replace(made(result, SRC, DST, 2.0, 2.0), overlay_full=(SOURCE_LINK,))
    vm = replace(still, overlay_full=(SOURCE_LINK, SOURCE_VM))
    moved = replace(made(result, DST, SRC, 2.0, 4.0), overlay_full=(RELAY_LINK,))
    free = replace(made(result, SRC, RELAY, 2.0, 4.0), direct_full=(), overlay_full=())
    found = bottlenecks([still, vm, moved, free])
    assert (found.direct[SOURCE_LINK], found.overlay[SOURCE_LINK]) == (0.75, 0.5)
    assert (found.direct[RELAY_LINK], found.overlay[RELAY_LINK]) == (0.0, 0.25)
    assert (found.direct_none, found.overlay_none) == (0.25, 0.25)
    assert (found.direct_network, found.overlay_network) == (1.0, 0.75)
    assert found.source_link_points == pytest.approx(0.25)
    assert found.source_link_reduction == pytest.approx(1 / 3)
    assert found.unmoved == {"1.2": 0.75, "1.5": 0.5}


def test_a_budget_buys_more_until_nothing_more_is_for_sale(readings: Readings) -> None:
    found = route(readings.paper, SRC, DST, "known")
    assert (found.direct_gbps, found.most_gbps) == pytest.approx((2.0, 6.0), rel=1e-3)
    # At 1.5 itself the ceiling is met to the last digit, or just not.
    assert found.saturated_budget == pytest.approx(1.5, abs=STEP * 1.01)
    assert found.changes == (1.02,)
    for budget in (1.0, 1.2, 1.4, 1.5):
        share = (budget - 1.0) / 0.5
        expected = 1 / ((1 - share) / 2 + share / 6)
        # Whole connections: one of 64 is 0.1 of the 6.
        assert found.gbps_at(budget) == pytest.approx(expected, abs=0.12)
        assert found.gbps_at(budget) <= expected * (1 + 1e-4)


def test_instances_by_continent(readings: Readings, result: PairResult) -> None:
    found = instances(
        readings.paper,
        [
            made(result, SRC, DST, 2.0, 6.0),
            made(result, DST, SRC, 1.0, 1.0),
            made(result, SRC, RELAY, 2.0, 4.0),
            made(result, RELAY, DST, 2.0, 3.0),
        ],
        Sweep(
            "that",
            tuple(
                OtherReadings(*pair, {THROTTLE: (2.0, 3.0), SLOW: (1.0, 8.0)})
                for pair in permutations((SRC, RELAY, DST), 2)
            ),
        ),
    )
    assert (found.between.pairs, found.within.pairs) == (3, 1)
    assert found.between.speedup == pytest.approx(6.0 ** (1 / 3))
    assert found.between.equal_total == pytest.approx(1.0)
    assert found.between.as_fast == pytest.approx(1 / 3)
    # Azure sends 16 and AWS 5.
    assert (found.between.slow_pairs, found.within.slow_pairs) == (3, 1)
    means = {RECEIVED: found.between.speedup, THROTTLE: 1.5, SLOW: 8.0}
    assert found.between.readings == pytest.approx(means)
    assert (found.named, found.throttled_most_gbps) == ((3.0,), 0.0)
    assert (found.between.example.src, found.between.example.dst) == (SRC, RELAY)
    assert found.within.speedup == pytest.approx(1.5)


def test_table_2_by_hand(readings: Readings) -> None:
    found = comparison(readings)
    # At most 10 Gbit/s into one instance at the destination; four in each region.
    assert found.row(RON).relays == (RELAY,)
    assert found.row(RON).gbps == pytest.approx(24.0)
    assert found.row(RON).speedup == pytest.approx(12.0)
    assert found.row(RON).price_ratio == pytest.approx(1.5)
    assert found.ron_one_vm.speedup == pytest.approx(3.0)
    assert found.received_direct_gbps == pytest.approx(1.0 / PAPER_GBIT)
    assert found.row(CHEAP).price_ratio == pytest.approx(1.0)
    assert found.row(CHEAP).speedup >= 3.88 / 1.71
    share = (1.59 / 1.40 - 1) / 0.5
    expected = 4 * 2 / ((1 - share) + share / 3)
    assert found.row(FAST).gbps == pytest.approx(expected, rel=0.01)
    assert found.row(FAST).price_ratio <= 1.59 / 1.40 * (1 + 1e-6)


def test_relays_that_cost_what_the_papers_ron_does(readings: Readings) -> None:
    """That costs 2.27 USD, and 12 instances for 21 s here 0.105."""
    grid = readings.paper
    types = tuple(replace(kind, usd_per_hour=1.5) for kind in grid.types)
    grid = replace(grid, types=types)
    assert comparison(replace(readings, paper=grid)).priced == ()  # 2.40 USD of egress.
    cheaper = grid.with_edges(usd_per_gb=grid.usd_per_gb * 2.2 / 2.4)
    (relay,) = comparison(replace(readings, paper=cheaper)).priced
    assert relay.relay == RELAY
    assert (relay.gbps, relay.received_gbps, relay.egress_usd) == pytest.approx(
        (24.0, 12.0 / PAPER_GBIT, 2.2)
    )


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid with every region that a figure names; in Fig. 1 a relay doubles the rate."""
    start, end = "azure:canadacentral", "gcp:asia-northeast1"
    rates = {
        **RATES,
        (start, end): 3.0,
        (start, "azure:westus2"): 6.0,
        ("azure:westus2", end): 7.0,
    }
    return write_grid(tmp_path_factory.mktemp("named"), NAMED, rates)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.mark.long
def test_the_page_and_its_plots(
    named: Path,
    build: Path,
    tmp_path: Path,
    result: PairResult,
    readings: Readings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    others = other_readings(readings, SRC, DST)
    for name, same in (("pair_result", result), ("other_readings", others)):

        def of_pair(_: Readings, src: str, dst: str, same: Any = same) -> Any:
            return replace(same, src=src, dst=dst)

        monkeypatch.setattr(evaluation, name, of_pair)
    assert main([str(named), "--out", str(tmp_path), "--build", str(build), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["pairs"] == len(NAMED) * (len(NAMED) - 1)
    assert len(data["budgets"]) == 3
    page = (tmp_path / PAGE).read_text()
    for title in ("Fig. 1:", "Fig. 7:", "Fig. 8:", "Fig. 9c:", "Fig. 10:", "Table 2:"):
        assert f"## {title}" in page
    assert "`by-hand` of 2022-01-29" in page
    assert "12 regions (5 aws, 5 azure, 2 gcp) and all 132 ordered pairs" in " ".join(page.split())
    assert "| over azure:westus2: throughput | 6.0 | 12.4 | 0.48 |" in page
    assert "- over azure:westus2: throughput: the reason is not known." in page
    drawn = sorted((tmp_path / "images" / "reproduction").iterdir())
    assert [file.name for file in drawn] == [
        f"figure-{name}.svg" for name in ("1", "10", "7", "8", "9c")
    ]
    for file in drawn:
        assert f"](../images/reproduction/{file.name})" in page
        assert file.stat().st_size < 150_000
        assert "<text" in file.read_text()
        assert "<dc:date>" not in file.read_text()


def test_one_figure_is_printed_and_the_page_left_alone(
    named: Path, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(named), "--out", str(tmp_path), "--build", str(build), "--figure", "1"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("## Fig. 1:")
    assert not (tmp_path / PAGE).exists()
    plot = tmp_path / "images" / "reproduction" / "figure-1.svg"
    first = plot.read_bytes()
    assert main(arguments) == 0
    assert plot.read_bytes() == first


def test_a_bad_grid_is_one_line_and_status_2(
    tmp_path: Path, three: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none"), "--build", str(tmp_path)]) == 2
    assert main([str(three), "--figure", "1", "--build", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "azure:canadacentral" in lines[1]


# ---------------------------------------------------------------- measured


def test_figure_1_is_the_paper_s_on_the_measured_grid(shared_dir: Path) -> None:
    found = motivation(read_measurements(shared_dir / "grids" / "skyplane-2022-01"))
    assert [way.paper_gbps for way in found.ways] == [6.2, 12.4, 13.9]
    for way in found.ways:
        assert way.gbps == pytest.approx(way.paper_gbps, rel=0.01)
        assert round(way.price_ratio, 1) == pytest.approx(way.paper_price_ratio)
    assert found.choice.speedup >= 2.0
    assert math.isclose(found.ways[1].received_gbps, 11.707)
