"""`plan`: the best overlay for an objective; starts nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.argument_types import written_as
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import require_writable, write_picture
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.locations import (
    are_locations,
    as_prefix_or_object,
    between_regions,
    further_locations,
    planning_job,
)
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import MinimizeCost

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.plan import TransferPlan


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("plan", help="find the best overlay; starts nothing")
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    parser.add_argument(
        "further", nargs="*", default=[], metavar="DST", help="more destinations of the same data"
    )
    planner_options.add_objective(parser)
    planner_options.add_limits(parser)
    parser.add_argument(
        "--plot", type=written_as(".svg"), metavar="FILE.svg", help="draw the plan on a map"
    )
    parser.add_argument(
        "--explain", action="store_true", help="explain the limits and the use of each relay"
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    why: tuple[str, ...] = ()
    with as_bad_input():
        if options.plot is not None:
            require_writable(options.plot)
        client = open_client(options)
        if options.further:
            plan = _plan_to_all(options, client)
        else:
            plan = _plan(options, client)
            if options.explain:
                from skyplane_orchestration.planner import explain_plan

                policy = planner_options.policy_from(options, client.grid.tags)
                limits = planner_options.limits_from(options)
                grid = client.grid_within_quotas((plan.src, plan.dst), policy)
                why = explain_plan(grid, plan, limits=limits, policy=policy).sentences
    if options.plot is not None:
        from skyplane_orchestration.planner.plots.plan_map import plan_svg

        with as_bad_input():
            write_picture(options.plot, plan_svg(plan, client.grid))
    if console.is_json:
        extra = {"explanation": list(why)} if options.explain else {}
        console.write_json({**plan.to_dict(), **extra})
        return SUCCESS
    from skyplane_orchestration.cli.render import plan_parts, sentence_parts

    ends = options.src, options.dst
    files = [None if ":" in one and not one.startswith("file:") else one for one in ends]
    if plan.trees:
        files = []
    console.print(*plan_parts(plan, *files), *sentence_parts(why))
    return SUCCESS


def _plan(options: argparse.Namespace, client: Client) -> TransferPlan:
    """The plan between two locations, or two region tags. Raises SkyplaneError."""
    if not are_locations(options, client.grid.tags):
        from skyplane_orchestration import planner

        grid, request = between_regions(options, client)
        objective = planner_options.objective_from(options) or client.default_objective
        return planner.plan(grid, options.src, options.dst, objective, **request)
    return as_prefix_or_object(planning_job(options, client), client.plan)


def _plan_to_all(options: argparse.Namespace, client: Client) -> TransferPlan:
    """The plan to `options.dst` and all of `options.further`. Raises SkyplaneError."""
    if options.explain:
        raise ConfigurationInvalid("--explain explains plans for one destination")
    kinds = {
        are_locations(argparse.Namespace(src=options.src, dst=tag), client.grid.tags)
        for tag in (options.dst, *options.further)
    }
    if kinds == {False}:
        from skyplane_orchestration import planner

        grid, request = between_regions(options, client, *options.further)
        objective = planner_options.objective_from(options) or MinimizeCost()
        ends = (options.dst, *options.further)
        return planner.multicast_plan(grid, options.src, ends, objective, **request)
    further = further_locations(options, options.further)
    return as_prefix_or_object(
        planning_job(options, client), lambda job: client.plan_to_all(job, further)
    )
