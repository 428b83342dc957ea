"""`plan` with several destinations: one overlay to all of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import planner_options
from skyplane_orchestration.cli.locations import (
    are_locations,
    as_prefix_or_object,
    between_regions,
    planning_job,
    require_one_destination,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import named_location

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.multicast_plan import MulticastPlan


def make_plan(options: argparse.Namespace, client: Client) -> MulticastPlan:
    """The plan to `options.dst` and all of `options.further`. Raises SkyplaneError."""
    if options.explain:
        raise ConfigurationInvalid("--explain explains plans for one destination")
    kinds = {
        are_locations(argparse.Namespace(src=options.src, dst=tag), client.grid.tags)
        for tag in (options.dst, *options.further)
    }
    if kinds == {False}:
        return _between_regions(options, client)
    require_one_destination(options)
    further = [named_location({"url": url}, {"url": "further"}) for url in options.further]
    return as_prefix_or_object(
        planning_job(options, client),
        lambda job: client.plan_to_all(job, further),
    )


def _between_regions(options: argparse.Namespace, client: Client) -> MulticastPlan:
    from skyplane_orchestration import planner
    from skyplane_orchestration.model.job import MinimizeCost

    grid, request = between_regions(options, client, *options.further)
    objective = planner_options.objective_from(options) or MinimizeCost()
    return planner.multicast_plan(
        grid, options.src, (options.dst, *options.further), objective, **request
    )


# ---------------------------------------------------------------- text


def plan_parts(plan: MulticastPlan) -> list[Table | Text]:
    from rich.text import Text

    from skyplane_orchestration.cli.render import instance_parts, job_rows, key_values, table
    from skyplane_orchestration.formatting import rate, usd

    rows = [
        ("from", plan.src),
        ("to", ", ".join(plan.destinations)),
        ("throughput", f"{plan.throughput_gbps:.2f} Gbit/s to each"),
        ("price", f"{usd(plan.cost.usd_per_gb)} per GB of source data (egress and instances)"),
        ("separate", _separate(plan)),
        *job_rows(plan),
    ]
    trees = table(
        ("tree", ">Gbit/s", "edge"),
        [
            (f"{number}" if first else "", rate(tree.flow_gbps) if first else "", edge)
            for number, tree in enumerate(plan.trees, 1)
            for first, edge in _edges(tree.edges)
        ],
    )
    return [key_values(rows), Text(), trees, Text(), *instance_parts(plan)]


def _edges(edges: tuple[tuple[str, str], ...]) -> list[tuple[bool, str]]:
    return [(number == 0, f"{tail} -> {head}") for number, (tail, head) in enumerate(edges)]


def _separate(plan: MulticastPlan) -> str:
    from skyplane_orchestration.formatting import usd

    separate = plan.separate
    if separate.total_usd_per_gb is None or separate.saving_usd_per_gb is None:
        missing = [tag for tag, price in separate.usd_per_gb.items() if price is None]
        return f"no separate plan at this rate to {', '.join(missing)}"
    text = f"{usd(separate.total_usd_per_gb)} per GB with one plan per destination"
    if separate.saving_usd_per_gb >= 0:
        text += f"; the shared plan saves {usd(separate.saving_usd_per_gb)}"
    if not separate.fits_quotas:
        text += "; the separate plans together exceed the quotas"
    return text
