"""Every value says where it comes from, and of when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.provenance import edge_facts, provenance_counts
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

if TYPE_CHECKING:
    from tests.grids.conftest import WriteGrid

FILES = {
    "grid.json": '{"name": "ours", "as_of": "2026-01-01", "source": "ourselves"}',
    "regions.csv": "region\naws:us-east-1\ngcp:us-east1\nazure:eastus\n",
    "throughput.csv": (
        "src,dst,gbps,samples,as_of\naws:us-east-1,gcp:us-east1,4.5,3,2026-02-02\n"
        "gcp:us-east1,aws:us-east-1,6,,\n"
    ),
    "latency.csv": "src,dst,rtt_ms\naws:us-east-1,gcp:us-east1,12\n",
    "price.csv": "src,dst,usd_per_gb,as_of\naws:us-east-1,gcp:us-east1,0.08,2026-03-03\n",
    "overrides.csv": "edge,usd_per_gib,reason,as_of\nazure:*>aws:*,0.04,contract,2026-04-04\n",
}


def test_one_edge_is_told_in_full(write_grid: WriteGrid) -> None:
    facts = edge_facts(load_grid(write_grid(FILES)), "aws:us-east-1", "gcp:us-east1")
    assert facts["rate"] == {
        "gbps": 4.5,
        "provenance": "measured",
        "as_of": "2026-02-02",
        "samples": 3,
    }
    assert facts["round_trip"] == {"ms": 12.0, "provenance": "measured", "as_of": "2026-01-01"}
    assert facts["price"] == {
        "usd_per_gb": 0.08,
        "provenance": "table",
        "as_of": "2026-03-03",
        "billed_usd": 0.08,
        "unit": "GB",
        "rule": "price.csv, taken at face value",
        "source": "ourselves",
        "verified": True,
    }
    assert facts["distance_km"] == pytest.approx(688, abs=5)
    end = facts["ends"]["aws:us-east-1"]
    assert end["request_usd_per_1000"] == {"read": 0.0004, "write": 0.005, "list": 0.005}
    assert end["instance_types"][0]["provenance"] == "shipped"
    assert (end["storage_read_gbps"], end["vcpu_quota"]) == (None, None)


def test_what_was_not_given_is_modelled_or_by_rule(write_grid: WriteGrid) -> None:
    grid = load_grid(write_grid(FILES))
    facts = edge_facts(grid, "gcp:us-east1", "azure:eastus")
    assert (facts["rate"]["provenance"], facts["rate"]["samples"]) == ("modelled", None)
    assert facts["rate"]["as_of"] == facts["round_trip"]["as_of"] == "2022-01-29"
    assert facts["price"]["provenance"] == "rules"
    assert (facts["price"]["billed_usd"], facts["price"]["unit"]) == (0.12, "GiB")
    assert facts["price"]["rule"] == "internet to any other country, first tier"
    assert facts["price"]["as_of"] == "2026-10-10"


def test_an_agreed_price_names_the_agreement(write_grid: WriteGrid) -> None:
    price = edge_facts(load_grid(write_grid(FILES)), "azure:eastus", "aws:us-east-1")["price"]
    assert price["usd_per_gb"] == usd_per_gib_to_usd_per_gb(0.04)
    assert price["rule"] == "azure:*>aws:* (overrides.csv row 2)"
    assert (price["billed_usd"], price["unit"]) == (0.04, "GiB")
    assert (price["source"], price["as_of"]) == ("contract", "2026-04-04")


@pytest.mark.parametrize(
    ("src", "dst", "verified"),
    [
        ("aws:us-east-1", "aws:us-east-2", True),
        # AWS goes by the source alone.
        ("aws:us-east-1", "aws:sa-west-1", True),
        ("aws:sa-west-1", "aws:us-east-1", False),
        ("gcp:us-east1", "gcp:me-west1", False),
        ("gcp:us-east1", "gcp:us-west1", True),
        # Its class is a guess, its internet price is not.
        ("gcp:me-west1", "aws:us-east-1", True),
        ("gcp:asia-northeast3", "aws:us-east-1", False),
        ("azure:chilecentral", "azure:eastus", False),
    ],
)
def test_a_guess_is_called_one_where_it_decides(src: str, dst: str, verified: bool) -> None:
    assert edge_facts(load_grid(), src, dst)["price"]["verified"] is verified


def test_counts_cover_every_value(write_grid: WriteGrid) -> None:
    counts = provenance_counts(load_grid(write_grid(FILES)))
    found = {(one["value"], one["provenance"], one["as_of"]): one["count"] for one in counts}
    assert found[("rate", "measured", "2026-02-02")] == 1
    assert found[("rate", "measured", "2026-01-01")] == 1
    assert found[("rate", "modelled", "2022-01-29")] == 4
    assert found[("round trip", "measured", "2026-01-01")] == 1
    assert found[("egress price", "override", "2026-04-04")] == 1
    assert found[("egress price", "table", "2026-03-03")] == 1
    for value in ("rate", "round trip", "egress price"):
        assert sum(count for key, count in found.items() if key[0] == value) == 6


def test_every_value_of_the_shipped_grid_has_a_date() -> None:
    counts = provenance_counts(load_grid())
    assert all(one["as_of"] for one in counts)
    assert {one["value"] for one in counts} >= {"instance type", "request price"}


def test_a_place_that_nobody_knows_has_no_round_trip_and_no_rate(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text("region\naws:us-east-1\nlocal:here\n")
    facts = edge_facts(load_grid(tmp_path), "local:here", "aws:us-east-1")
    assert facts["distance_km"] is None
    assert facts["round_trip"] == {"ms": None, "provenance": "unknown", "as_of": ""}
    assert facts["rate"]["gbps"] == 0
    assert facts["price"]["rule"] == "out of a place without a cloud"
