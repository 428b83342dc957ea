"""Prices that a user has agreed: before every table and rule, and never without effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.price_overrides import read_overrides
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

if TYPE_CHECKING:
    from tests.grids.conftest import WriteGrid

EU_TO_GCP = "edge,usd_per_gb,reason,as_of\naws:eu-*>gcp:*,0.02,contract 17,2026-06-01\n"


def file_of(directory: Path, text: str, name: str = "mine.csv") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_glob_covers_its_edges_and_no_other(tmp_path: Path) -> None:
    plain = load_grid()
    grid = load_grid(price_overrides=file_of(tmp_path, EU_TO_GCP))
    chosen = grid.price_source == "override"
    srcs = [tag for tag in grid.tags if tag.startswith("aws:eu-")]
    dsts = [tag for tag in grid.tags if tag.startswith("gcp:")]
    assert chosen.sum() == len(srcs) * len(dsts) > 0
    assert set(np.unique(grid.usd_per_gb[chosen])) == {0.02}
    assert (grid.usd_per_gb[~chosen] == plain.usd_per_gb[~chosen]).all()
    assert (plain.price_source == "rules").all()


def test_a_price_per_gib_is_converted_and_remembered_as_written(tmp_path: Path) -> None:
    text = "- {edge: 'azure:*>azure:*', usd_per_gib: 0.01, reason: agreed}\n"
    file = file_of(tmp_path, text, "mine.yaml")
    (one,) = read_overrides(file)
    assert (one.billed_usd, one.unit, one.reason) == (0.01, "GiB", "agreed")
    assert one.usd_per_gb == usd_per_gib_to_usd_per_gb(0.01)
    grid = load_grid(price_overrides=str(file))
    assert grid.egress_price("azure:eastus", "azure:uksouth") == one.usd_per_gb
    assert grid.egress_price("azure:eastus", "azure:eastus") == 0


def test_the_first_entry_that_matches_wins(tmp_path: Path) -> None:
    text = "edge,usd_per_gb\naws:eu-west-1>gcp:*,0.01\naws:*>*,0.05\naws:eu-west-1>*,0.9\n"
    grid = load_grid(price_overrides=file_of(tmp_path, text))
    assert grid.egress_price("aws:eu-west-1", "gcp:us-east1") == 0.01
    assert grid.egress_price("aws:eu-west-1", "azure:eastus") == 0.05


def test_a_grid_may_hold_its_own_and_those_given_go_before_them(
    tmp_path: Path, write_grid: WriteGrid
) -> None:
    directory = write_grid(
        {
            "price.csv": "src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0.5\n",
            "overrides.csv": "edge,usd_per_gb\naws:*>gcp:*,0.3\n",
            "overrides.yaml": "overrides: [{edge: '*>*', usd_per_gb: 0.4}]\n",
        }
    )
    own = load_grid(directory)
    assert own.egress_price("aws:us-east-1", "gcp:us-east1") == 0.3
    assert own.egress_price("gcp:us-east1", "aws:us-east-1") == 0.4
    given = load_grid(
        directory, price_overrides=file_of(tmp_path, "edge,usd_per_gb\naws:*>gcp:*,0\n")
    )
    assert given.egress_price("aws:us-east-1", "gcp:us-east1") == 0
    assert given.egress_price("gcp:us-east1", "aws:us-east-1") == 0.4
    assert [one.billed_usd for one in given.overrides] == [0, 0.3, 0.4]


def test_a_directory_on_the_shipped_base_may_hold_agreed_prices_alone(tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text(json.dumps({"name": "ours", "base": "shipped"}))
    (tmp_path / "overrides.csv").write_text(EU_TO_GCP)
    grid, shipped = load_grid(tmp_path), load_grid()
    assert (grid.name, grid.tags) == ("ours", shipped.tags)
    assert (grid.throughput_gbps == shipped.throughput_gbps).all()
    assert grid.egress_price("aws:eu-west-1", "gcp:us-east1") == 0.02
    assert grid.egress_price("aws:us-east-1", "gcp:us-east1") == shipped.egress_price(
        "aws:us-east-1", "gcp:us-east1"
    )


def test_what_leaves_for_this_machine_may_be_agreed_too(tmp_path: Path) -> None:
    text = "edge,usd_per_gb\naws:*>local:*,0.001\n"
    grid = load_grid(price_overrides=file_of(tmp_path, text))
    assert grid.egress_price("aws:us-east-1", "local:here") == 0.001
    assert grid.egress_price("gcp:us-east1", "local:here") > 0.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("edge,usd_per_gb\naws:eu-wst-1>gcp:*,1\n", r"mine\.csv row 2: .*did you mean aws:eu-west"),
        ("edge,usd_per_gb\naws:us-east-1>aws:us-east-1,1\n", "only one region"),
        ("edge,usd_per_gb\naws:*,1\n", r"mine\.csv row 2: edge is 'aws:\*'; write SRC>DST"),
        ("edge,usd_per_gb\na>b>c,1\n", "write SRC>DST"),
        ("edge,usd_per_gb\n>gcp:*,1\n", "write SRC>DST"),
        ("edge,usd_per_gb\naws:*>gcp:*,-1\n", r"usd_per_gb is '-1'"),
        ("edge,usd_per_gb\naws:*>gcp:*,inf\n", r"usd_per_gb is 'inf'"),
        ("edge,usd_per_gb\naws:*>gcp:*,dear\n", r"usd_per_gb is 'dear'"),
        ("edge,usd_per_gb\naws:*>gcp:*,\n", "either usd_per_gb or usd_per_gib"),
        ("edge,usd_per_gb,usd_per_gib\naws:*>gcp:*,1,1\n", "either usd_per_gb or usd_per_gib"),
        ("edge,price\naws:*>gcp:*,1\n", "'price' is unknown"),
        ("edge,usd_per_gb,as_of\naws:*>gcp:*,1,June\n", "as_of is 'June'"),
        ("edge,usd_per_gb\naws:*>gcp:*\n", r"mine\.csv row 2: the number of fields"),
        ("price\n1\n", r"mine\.csv row 1: the header lacks edge"),
        ("", r"mine\.csv row 1: the header lacks edge"),
    ],
)
def test_an_entry_without_effect_or_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(GridInvalid, match=says):
        load_grid(price_overrides=file_of(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", r"mine\.yaml is not YAML"),
        ("overrides: 3", "a list of entries"),
        ("[1]", "a list of entries"),
        ("- {edge: 'aws:*>gcp:*', usd_per_gb: true}", r"entry 1: usd_per_gb is True"),
        ("- {edge: 'aws:*>gcp:*', usd: 1}", r"entry 1: 'usd' is unknown"),
    ],
)
def test_a_yaml_file_is_checked_as_well(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(GridInvalid, match=says):
        read_overrides(file_of(tmp_path, text, "mine.yaml"))


def test_a_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GridInvalid, match="no file of price overrides"):
        read_overrides(tmp_path / "none.csv")
    with pytest.raises(GridInvalid, match=r"not 'mine\.txt'"):
        read_overrides(file_of(tmp_path, "", "mine.txt"))
