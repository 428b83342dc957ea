"""Regions that not every account has: relays only where the account or the policy says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import MinimizeCost, Policy
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.planner import best_relay, plan

S, R, T = "aws:s", "azure:r", "gcp:t"


@pytest.fixture
def grid(small_grid: Callable[..., Grid]) -> Grid:
    """The relay is cheaper than the direct path; nobody has measured it."""
    made = small_grid({(S, T): (2.5, 0.10), (S, R): (5.0, 0.01), (R, T): (5.0, 0.02)})
    values = replace(made.edges(), measured=np.zeros((3, 3), dtype=bool))
    regions = (replace(one, state="restricted" if one.tag == R else "") for one in made.regions)
    return replace(made, regions=tuple(regions), edges=lambda: values)


def test_such_a_region_relays_only_where_the_account_is_known_to_have_it(grid: Grid) -> None:
    found = plan(grid, S, T, MinimizeCost(2))
    assert found.relays == best_relay(grid, S, T).relays == ()
    (note,) = [note for note in found.notes if R in note]
    assert "would lower the price of this rate by up to 6" in note
    measured = replace(grid.edges(), measured=np.ones((3, 3), dtype=bool))
    quota = RegionQuota(R, "cores", vcpus=64)
    for known in (replace(grid, edges=lambda: measured), grid.with_account([quota])):
        found = plan(known, S, T, MinimizeCost(2))
        assert found.relays == best_relay(known, S, T).relays == (R,)
        assert not any(R in note and "price" in note for note in found.notes)


def test_such_a_region_relays_where_the_policy_allows_it(grid: Grid) -> None:
    allowed = Policy(allow_regions=(R,))
    assert plan(grid, S, T, MinimizeCost(2), policy=allowed).relays == (R,)
    assert best_relay(grid, S, T, policy=allowed).relays == (R,)


def test_such_a_region_may_be_an_end(grid: Grid) -> None:
    assert plan(grid, R, T, MinimizeCost(1)).src == R


def test_the_shipped_grid_knows_regions_that_azure_grants_on_request(shipped: Grid) -> None:
    azure = {one.name for one in shipped.regions if one.cloud == "azure" and one.state != "default"}
    assert azure == {
        "brazilsoutheast", "francesouth", "germanynorth", "jioindiacentral", "jioindiawest",
        "koreasouth", "norwaywest", "southafricawest", "switzerlandwest", "uaecentral",
    }  # fmt: skip
    assert shipped.is_on_request("aws:me-south-1")
    assert not shipped.is_on_request("aws:eu-west-1")
