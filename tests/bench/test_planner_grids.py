"""What the bench says about prices and rates, and that it does without the measured grid."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import planner, planner_grids
from bench.report import Case

from skyplane_orchestration.grids import load_grid

AWS_PRICES = """src,dst,usd_per_gb
aws:us-east-1,aws:us-east-2,0.01
aws:us-east-1,aws:eu-west-1,0.02
aws:eu-west-1,aws:us-east-1,0.5
gcp:us-east1,aws:us-east-1,0.12
"""


def test_only_listed_pairs_out_of_the_cloud_are_counted(tmp_path: Path) -> None:
    tags = ("aws:us-east-1", "aws:us-east-2", "aws:eu-west-1", "gcp:us-east1")
    (tmp_path / "regions.csv").write_text("region\n" + "\n".join(tags), encoding="utf-8")
    (tmp_path / "price.csv").write_text(AWS_PRICES, encoding="utf-8")
    listed = load_grid(tmp_path)
    assert planner_grids.equal_prices(load_grid(), listed, "aws") == (2, 3)
    assert planner_grids.equal_prices(load_grid(), listed, "gcp") == (1, 1)
    found = {case.case.split()[1]: case for case in planner_grids.price_cases(load_grid(), listed)}
    assert not found["aws"].holds
    assert found["gcp"].holds


def test_without_the_measured_grid_its_cases_are_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planner_grids, "MEASURED_DIR", tmp_path / "none")
    assert planner.measured_cases(load_grid(), 1, smoke=True) == []
    assert "left out" in capsys.readouterr().err


def test_the_median_over_every_region_is_one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "plan_seconds", lambda *_, exactly: [0.1 if exactly else 0.3])
    found = {case.case.split(":")[0]: case for case in planner.speed_cases(load_grid(), 1, 2)}
    assert found["regions135"] == Case(
        "regions135: least cost over all 135 regions, median of 4",
        0.2,
        "s",
        floor=planner.FLOOR_S,
        goal=planner.GOAL_S,
    )
