"""What the bench says about prices and rates, and that it does without the measured grid."""

from __future__ import annotations

from pathlib import Path

import yaml
from bench import planner_grids

from skyplane_orchestration.grids import Grid, load_grid

AWS_PRICES = """src,dst,usd_per_gb
aws:us-east-1,aws:us-east-2,0.01
aws:us-east-1,aws:eu-west-1,0.02
aws:eu-west-1,aws:us-east-1,0.5
gcp:us-east1,aws:us-east-1,0.12
"""


def listed_grid(directory: Path) -> Grid:
    tags = ("aws:us-east-1", "aws:us-east-2", "aws:eu-west-1", "gcp:us-east1")
    (directory / "regions.csv").write_text("region\n" + "\n".join(tags), encoding="utf-8")
    (directory / "price.csv").write_text(AWS_PRICES, encoding="utf-8")
    return load_grid(directory)


def test_only_listed_pairs_out_of_the_cloud_are_counted(tmp_path: Path) -> None:
    listed = listed_grid(tmp_path)
    pairs = list(planner_grids.priced_pairs(load_grid(), listed))
    assert [pair.cloud for pair in pairs].count("aws") == 3
    assert sum(pair.is_equal for pair in pairs if pair.cloud == "aws") == 2
    found = {case.case.split()[1]: case for case in planner_grids.price_cases(load_grid(), listed)}
    assert not found["aws"].holds
    assert found["gcp"].holds


def test_a_difference_without_a_reason_is_below_the_floor(tmp_path: Path) -> None:
    cases = planner_grids.price_cases(load_grid(), listed_grid(tmp_path))
    explained = [case for case in cases if "listed reason" in case.case]
    assert [(case.value, case.floor, case.holds) for case in explained] == [(0, 1, False)]
    assert "1 unexplained" in str(explained[0].against)


def test_every_price_that_differs_from_the_list_of_2022_has_one_reason(shared_dir: Path) -> None:
    measured = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    differences = planner_grids.price_differences()
    pairs = list(planner_grids.priced_pairs(load_grid(), measured))
    assert len(pairs) == 63 * 62
    assert all(pair.is_equal for pair in pairs if pair.cloud == "aws")
    reasons = {
        pair: planner_grids.groups_of(pair, differences) for pair in pairs if not pair.is_equal
    }
    assert [pair for pair, groups in reasons.items() if len(groups) != 1] == []
    used = {group for groups in reasons.values() for group in groups}
    assert used == {one.group for one in differences}


def test_the_page_has_every_group_with_its_count(repository: Path, shared_dir: Path) -> None:
    measured = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    page = (repository / "docs" / "reference" / "grids.md").read_text(encoding="utf-8")
    named = {one.group for one in planner_grids.price_differences()}
    for case in planner_grids.price_cases(load_grid(), measured):
        group = case.case.removeprefix("prices: ")
        if group in named:
            assert f"| {group} | {case.value:g} |" in page


def test_every_group_has_a_reason_and_a_source() -> None:
    groups = yaml.safe_load(planner_grids.DIFFERENCES.read_text(encoding="utf-8"))
    for group in groups:
        assert group["reason"].strip()
        assert any(year in group["source"] for year in ("2022", "2024", "2025", "2026"))
