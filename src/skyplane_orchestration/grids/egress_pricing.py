"""The prices of one job: egress by the volume of the month and by network tier, and reading."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from skyplane_orchestration.grids.grid import EdgeValues, Grid
from skyplane_orchestration.grids.monthly_volume import MonthlyVolume
from skyplane_orchestration.grids.price_rules import offers_standard_tier
from skyplane_orchestration.model.job import NetworkTierRule, Policy


def priced_for(grid: Grid, policy: Policy, volume_gb: float | None) -> Grid:
    """The grid with the prices of a job; a grid that has those of a job keeps them.

    Each edge has the price of all of the volume, whatever share of it takes that way.
    """
    month = MonthlyVolume(policy.already_this_month_gb, volume_gb or 0.0)
    return with_network_tier(for_month(grid, policy, month), policy.network_tier)


def for_month(grid: Grid, policy: Policy, month: MonthlyVolume) -> Grid:
    """The grid with the prices of a month and of reading; a grid that has some keeps them.

    Only prices to the internet that come from the rules have tiers.
    """
    if grid.month is not None:
        return grid

    def edges() -> EdgeValues:
        from skyplane_orchestration.grids import edge_values

        return edge_values.with_monthly_volume(grid, month)

    return replace(
        grid,
        edges=cache(edges),
        month=month,
        source_storage_class=policy.source_storage_class,
        key_requests=policy.key_requests,
    )


def with_network_tier(grid: Grid, rule: NetworkTierRule) -> Grid:
    """The grid with the prices of a network tier; a grid that has some keeps them.

    Agreed prices and those of price.csv hold for both tiers. `auto` compares the prices of each
    region: both tiers have the same planned rates, so the cheaper one is never worse.
    """
    if rule == "premium" or grid.standard_tier:
        return grid
    chosen = {
        region.tag for region in grid.regions if offers_standard_tier(grid.price_document, region)
    }
    if rule == "auto":
        changed = _by_standard_tier(grid, frozenset(chosen)).usd_per_gb - grid.usd_per_gb
        rows = {tag: changed[grid.index[tag]] for tag in chosen}
        # Those with a cheaper way out, and no dearer one.
        chosen = {tag for tag, row in rows.items() if row.min() < 0.0 and row.max() <= 0.0}
    return _by_standard_tier(grid, frozenset(chosen)) if chosen else grid


def _by_standard_tier(grid: Grid, tags: frozenset[str]) -> Grid:
    def edges() -> EdgeValues:
        from skyplane_orchestration.grids.edge_values import with_standard_tier

        return with_standard_tier(grid, tags)

    return replace(grid, edges=cache(edges), standard_tier=tags)
