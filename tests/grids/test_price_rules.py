"""Rules, as billed: which entry an edge falls under, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.price_rules import applied_rule
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb


@pytest.mark.parametrize(
    ("src", "dst", "billed", "rule", "as_of"),
    [
        ("aws:us-east-1", "aws:us-east-2", 0.01, "pair us-east-1>us-east-2", "2024-09-25"),
        ("aws:sa-east-1", "aws:us-east-1", 0.138, "class SAO to any other region", "2024-09-25"),
        ("aws:eu-west-1", "gcp:us-east1", 0.09, "class A to the internet", "2024-09-25"),
        ("gcp:us-east1", "gcp:europe-west1", 0.05, "class pair NA>EU", "2024-09-25"),
        (
            "gcp:us-east1",
            "gcp:asia-east1",
            0.08,
            "class AS, the higher of NA>AS",
            "2024-09-25",
        ),
        ("gcp:us-east1", "aws:eu-west-1", 0.12, "internet to any other country", "2026-10-10"),
        ("gcp:us-east1", "aws:ap-northeast-2", 0.19, "internet to KR", "2026-10-10"),
        ("gcp:us-east1", "aws:af-south-1", 0.15, "internet to ZA", "2026-10-10"),
        ("gcp:me-west1", "aws:eu-west-1", 0.15, "internet out of IL", "2026-10-10"),
        ("gcp:me-west1", "aws:ap-northeast-2", 0.19, "internet to KR", "2026-10-10"),
        ("gcp:australia-southeast1", "aws:us-east-1", 0.19, "internet out of AU", "2026-10-10"),
        ("gcp:asia-northeast1", "aws:us-east-1", 0.12, "any other country", "2026-10-10"),
        ("azure:eastus", "azure:westus", 0.02, "class NA inside its continent", "2025-12-01"),
        ("azure:eastus", "azure:uksouth", 0.05, "class NA to another continent", "2025-12-01"),
        ("azure:brazilsouth", "azure:chilecentral", 0.16, "class SA", "2025-12-01"),
        ("azure:uksouth", "aws:eu-west-2", 0.087, "class EU to the internet", "2025-12-01"),
    ],
)
def test_an_edge_names_its_rule(src: str, dst: str, billed: float, rule: str, as_of: str) -> None:
    grid = load_grid()
    found = applied_rule(grid.price_document, grid.region(src), grid.region(dst))
    assert found.billed_usd == billed
    assert rule in found.rule
    assert (found.unit, found.as_of) == ("GiB", as_of)
    assert found.source
    assert found.usd_per_gb == usd_per_gib_to_usd_per_gb(billed) == grid.egress_price(src, dst)


def test_every_edge_of_the_shipped_grid_has_a_dated_rule_with_a_source() -> None:
    grid = load_grid()
    for src in grid.regions:
        for dst in grid.regions:
            if src.tag != dst.tag:
                found = applied_rule(grid.price_document, src, dst)
                assert 0.01 <= found.billed_usd <= 0.2
                assert found.as_of
                assert found.source


def test_pricing_by_groups_is_pricing_edge_by_edge() -> None:
    grid = load_grid()
    one_by_one = [
        [
            0.0 if src is dst else applied_rule(grid.price_document, src, dst).usd_per_gb
            for dst in grid.regions
        ]
        for src in grid.regions
    ]
    assert (grid.usd_per_gb == np.array(one_by_one)).all()


def test_the_cells_are_those_of_the_facts(shared_dir: Path) -> None:
    facts = yaml.safe_load((shared_dir / "facts" / "price_rules.yaml").read_text(encoding="utf-8"))
    ours = load_grid().price_document["clouds"]
    aws = {
        name: {"inter": row["inter"], "inet": row["internet"]}
        for name, row in ours["aws"]["classes"].items()
    }
    assert (aws, ours["aws"]["pairs"]) == (facts["aws"]["classes"], facts["aws"]["pairs"])
    assert ours["gcp"]["class_pairs"] == facts["gcp"]["class_pairs"]
    assert ours["gcp"]["class_rates"] == facts["gcp"]["class_rate"]
    premium = facts["gcp"]["inet_premium_by_dst"]
    assert ours["gcp"]["internet_by_destination"].items() >= premium.items()
    azure = facts["azure"]
    assert ours["azure"]["classes"] == {
        name: {
            "intra": row["intra"],
            "inter": row["inter"],
            "internet": azure["inet_premium_by_zone"][row["zone"]],
        }
        for name, row in azure["classes"].items()
    }


def test_inside_a_region_and_out_of_this_machine_nothing_is_billed() -> None:
    document = load_grid().price_document
    here = GridRegion("aws:us-east-1", price_class="A")
    assert applied_rule(document, here, here).rule == "same region"
    assert applied_rule(document, here, here).usd_per_gb == 0
    assert applied_rule(document, GridRegion("local:here"), here).usd_per_gb == 0


def test_rules_that_do_not_cover_an_edge_are_refused_with_what_is_missing() -> None:
    document = load_grid().price_document
    here, there = GridRegion("aws:a", price_class="A"), GridRegion("aws:b", price_class="Z")
    assert applied_rule(document, here, there).usd_per_gb > 0
    with pytest.raises(GridInvalid, match=r"no entry 'Z' needed for aws:b -> aws:a"):
        applied_rule(document, there, here)
    with pytest.raises(GridInvalid, match="no rules for 'oracle'"):
        applied_rule(document, GridRegion("oracle:x"), here)
    barrels = {"clouds": {"aws": {**document["clouds"]["aws"], "unit": "barrel"}}}
    with pytest.raises(GridInvalid, match="unit of aws is 'barrel'"):
        applied_rule(barrels, here, there)
