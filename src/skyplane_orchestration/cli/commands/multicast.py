"""`plan` with further destinations: one overlay that brings the data to all of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import planner_options
from skyplane_orchestration.cli.client_factory import open_client, require_writable, write_picture
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.cli.locations import (
    are_places,
    as_object_or_prefix,
    job_from,
    require_plain_regions,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.multicast_plan import MulticastPlan


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Plan to `options.dst` and to all of `options.further`."""
    with refusing():
        if options.explain:
            raise ConfigurationInvalid("--explain explains plans for one destination")
        if options.plot is not None:
            require_writable(options.plot)
        client = open_client(options, grid=options.grid)
        plan = _plan(options, client)
    if options.plot is not None:
        from skyplane_orchestration.planner.plots.plan_map import plan_svg

        with refusing():
            write_picture(options.plot, plan_svg(plan, client.grid))
    if terminal.is_json:
        terminal.write_json(plan.to_dict())
    else:
        terminal.answer({}, *_parts(plan))
    return SUCCESS


def _plan(options: argparse.Namespace, client: Client) -> MulticastPlan:
    """The plan from one place to several, or between regions as such."""
    kinds = {
        are_places(argparse.Namespace(src=options.src, dst=tag), client.grid.tags)
        for tag in (options.dst, *options.further)
    }
    if kinds == {False}:
        return _between_regions(options, client)
    _refuse_options_of_one_destination(options)
    further = [Location(url) for url in options.further]
    return as_object_or_prefix(
        job_from(options, client),
        lambda job: client.plan_to_all(job, further, proof_s=options.prove_s),
    )


def _refuse_options_of_one_destination(options: argparse.Namespace) -> None:
    for name in ("region", "endpoint", "credentials", "option"):
        if getattr(options, f"dst_{name}"):
            raise ConfigurationInvalid(
                f"--dst-{name} is for one destination; with several, give URLs whose stores"
                " say where they are, or region tags"
            )


def _between_regions(options: argparse.Namespace, client: Client) -> MulticastPlan:
    from skyplane_orchestration import planner

    require_plain_regions(options)
    limits = planner_options.limits_from(options)
    destinations = (options.dst, *options.further)
    objective = planner_options.objective_from(options) or planner.default_multicast_objective(
        client.grid, options.src, destinations, limits
    )
    return planner.multicast_plan(
        client.grid,
        options.src,
        destinations,
        objective,
        volume_gb=options.volume_gb,
        objects=options.objects,
        limits=limits,
        policy=planner_options.policy_from(options, client.grid.tags),
        proof_s=planner_options.proof_s_from(options),
    )


# ---------------------------------------------------------------- for people


def _parts(plan: MulticastPlan) -> list[Table | Text]:
    from rich.text import Text

    from skyplane_orchestration.cli.render import cost_items, facts, plain, table
    from skyplane_orchestration.formatting import duration, rate, usd, volume

    rows = [
        ("from", plan.src),
        ("to", ", ".join(plan.destinations)),
        ("throughput", f"{plan.throughput_gbps:.2f} Gbit/s to each"),
        ("price", f"{usd(plan.cost.usd_per_gb)} per GB of source data (egress and instances)"),
        ("separate", _separate(plan)),
    ]
    if plan.volume_gb is not None:
        rows += [
            ("volume", volume(plan.volume_gb)),
            ("time", f"{duration(plan.transfer_s)}, after {duration(plan.provision_s)} to start"),
            ("cost", cost_items(plan.cost)),
        ]
    if plan.binding:
        rows.append(("bound by", ", ".join(plan.binding)))
    if plan.solver.status == "feasible":
        rows.append(("proven", f"nothing is better by more than {plan.solver.gap:.2%}"))
    grid = plan.grid
    rows.append(("grid", f"{grid.name} of {grid.as_of}, throughput {grid.throughput}"))
    trees = table(
        ("tree", ">Gbit/s", "edge"),
        [
            (f"{number}" if first else "", rate(tree.flow_gbps) if first else "", edge)
            for number, tree in enumerate(plan.trees, 1)
            for first, edge in _edges(tree.edges)
        ],
    )
    instances = table(
        ("region", ">instances", "type"),
        [(tag, group.count, group.type) for tag, group in plan.instances.items()],
    )
    notes = (plain(f"note: {note}") for note in plan.notes)
    return [facts(rows), Text(), trees, Text(), instances, *notes]


def _edges(edges: tuple[tuple[str, str], ...]) -> list[tuple[bool, str]]:
    return [(number == 0, f"{tail} -> {head}") for number, (tail, head) in enumerate(edges)]


def _separate(plan: MulticastPlan) -> str:
    from skyplane_orchestration.formatting import usd

    separate = plan.separate
    if separate.total_usd_per_gb is None or separate.saving_usd_per_gb is None:
        missing = [tag for tag, price in separate.usd_per_gb.items() if price is None]
        return f"no plan of its own at this rate: {', '.join(missing)}"
    words = f"{usd(separate.total_usd_per_gb)} per GB by one plan per destination"
    if separate.saving_usd_per_gb >= 0:
        words += f"; shared saves {usd(separate.saving_usd_per_gb)}"
    if not separate.fits_quotas:
        words += "; together these exceed the quotas"
    return words
