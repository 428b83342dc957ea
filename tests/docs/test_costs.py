"""The tables of costs.md add up, and the page about leftovers has the defaults of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.costs import typical_costs

from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.provision.fleet.user_data import SETUP_MINUTES
from skyplane_orchestration.provision.provisioner import FleetTimes


def test_the_parts_of_each_row_are_its_total() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in typical_costs().splitlines()
        if re.match(r"\| \d", line)
    ]
    assert len(rows) == 4 * 3 * 3
    for *_, egress, instances, requests, other, fee, total in rows:
        parts = sum(_usd(cell) for cell in (egress, instances, requests, other, fee))
        assert parts == pytest.approx(_usd(total), abs=0.03)
        # As the page says.
        assert _usd(instances) <= 0.025 * _usd(total)
        assert _usd(requests) <= 0.025 * _usd(total)


def _usd(cell: str) -> float:
    return float(cell.strip("$").replace(",", "") or 0)


def test_the_page_about_leftovers_has_the_defaults(repository: Path) -> None:
    page = (repository / "docs/reference/leftovers.md").read_text()
    defaults = dict(re.findall(r"^\| `(\w+_s)` \| ([\d,]+) s ", page, re.MULTILINE))
    assert {name: float(text.replace(",", "")) for name, text in defaults.items()} == {
        "start_within_s": FleetTimes().start_within_s,
        "lease_s": FleetTimes().lease_s,
        "hard_end_s": FleetTimes().hard_end_s,
    }
    assert f"takes {SETUP_MINUTES} minutes" in page
    grid = load_grid()
    for cloud, name in (("aws", "c7gn.large"), ("gcp", None), ("azure", None)):
        assert f"${grid.instance_type(cloud, name).usd_per_hour:g} an hour" in page
