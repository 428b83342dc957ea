"""`frontier`: the plans from the cheapest to the fastest, and the baselines."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.argument_types import written_as
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import require_writable, write_picture
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.locations import are_locations, planning_job, require_plain_regions
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.formatting import counted

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.planner.pareto import Frontier

SCHEMA_VERSION: Final = 1
_MIN_POINTS, _MAX_POINTS = 2, 200
#: The baselines, with one instance per region and with as many as the limits allow.
_BASELINES: Final = ("direct_1", "direct_n", "ron_1", "ron_n")


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("frontier", help="list plans from the cheapest to the fastest")
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    parser.add_argument(
        "--points",
        type=_points,
        default=20,
        metavar="N",
        help=f"number of plans, {_MIN_POINTS} to {_MAX_POINTS} (default: %(default)s)",
    )
    planner_options.add_objective(parser, "at most one; its plan is listed as chosen")
    planner_options.add_limits(parser)
    parser.add_argument(
        "--plot", type=written_as(".svg"), metavar="FILE.svg", help="draw the prices over the rates"
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        if options.plot is not None:
            from skyplane_orchestration.planner.plots.frontier_chart import require_matplotlib

            require_matplotlib()
            require_writable(options.plot)
        client = open_client(options)
        found = _find_plans(options, client)
    if options.plot is not None:
        with as_bad_input():
            write_picture(options.plot, _chart(found))
    if console.is_json:
        console.write_json(_document(found))
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    columns = ("", ">Gbit/s", ">USD per GB", ">gap", ">USD", ">instances", "relays")
    named = [
        (" ".join([str(number), *found.marks(number - 1)]), plan)
        for number, plan in enumerate(found.frontier, 1)
    ]
    named += [("chosen", found.chosen)] if found.chosen else []
    named += [(_title(name, plan), plan) for name, plan in found.baselines.items() if plan]
    console.print(table(columns, [_row(name, plan) for name, plan in named]))
    return SUCCESS


def _points(text: str) -> int:
    if not text.isdecimal() or not _MIN_POINTS <= int(text) <= _MAX_POINTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {_MIN_POINTS} to {_MAX_POINTS}"
        )
    return int(text)


def _regions(options: argparse.Namespace, client: Client) -> tuple[str, str]:
    """The region tags of both ends; a store is asked for its region if none is given."""
    if not are_locations(options, client.grid.tags):
        require_plain_regions(options)
        return options.src, options.dst
    from skyplane_orchestration.security.store_credentials import CredentialSources
    from skyplane_orchestration.storage.preflight import locate

    located = locate(planning_job(options, client), CredentialSources())
    return located.source.region, located.destination.region


@dataclass(frozen=True, slots=True)
class _Plans:
    """The plans to print; None for the objective that was not given or an impossible baseline."""

    frontier: Frontier
    knee: int
    chosen: TransferPlan | None
    baselines: dict[str, TransferPlan | None]

    def marks(self, place: int) -> tuple[str, ...]:
        """What a plan of the frontier is, by its place."""
        ends = {"cheapest": 0, "knee": self.knee, "fastest": len(self.frontier) - 1}
        return tuple(name for name, one in ends.items() if one == place)


def _find_plans(options: argparse.Namespace, client: Client) -> _Plans:
    """Raises SkyplaneError if there is no plan, or none for the objective."""
    from skyplane_orchestration import planner
    from skyplane_orchestration.planner.baselines import baselines

    objective = planner_options.objective_from(options)
    src, dst = _regions(options, client)
    request = planner_options.request_from(options, client.grid.tags)
    grid = client.grid_within_quotas((src, dst), request["policy"])
    chosen = planner.plan(grid, src, dst, objective, **request) if objective else None
    frontier = planner.frontier(grid, src, dst, points=options.points, **request)
    knee = frontier.knee(client.default_objective)
    others: dict[str, TransferPlan | None] = dict.fromkeys(_BASELINES)
    if frontier[0].edges:
        known = {name: request[name] for name in ("objects", "limits", "policy")}
        found = baselines(grid, src, dst, frontier[0].volume_gb, **known)
        for name, (_, made) in found.items():
            others[name] = None if isinstance(made, PlanInfeasible) else made
    return _Plans(frontier, knee, chosen, others)


def _title(name: str, plan: TransferPlan) -> str:
    """`direct, 8 instances`: the number in the region that has most."""
    count = max(group.count for group in plan.instances.values())
    return f"{'RON' if name.startswith('ron') else 'direct'}, {counted(count, 'instance')}"


def _chart(found: _Plans) -> str:
    from skyplane_orchestration.planner import frontier_svg

    titled = {_title(name, plan): plan for name, plan in found.baselines.items() if plan}
    return frontier_svg(found.frontier, titled, relaxed=found.frontier.relaxed, chosen=found.chosen)


def _document(found: _Plans) -> dict[str, Any]:
    first = found.frontier[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "src": first.src,
        "dst": first.dst,
        "knee": found.knee,
        "points": [plan.to_dict() for plan in found.frontier],
        "relaxed": [
            {"throughput_gbps": gbps, "usd_per_gb": usd_per_gb}
            for gbps, usd_per_gb in found.frontier.relaxed
        ],
        "chosen": found.chosen and found.chosen.to_dict(),
        **{name: plan and plan.to_dict() for name, plan in found.baselines.items()},
    }


def _row(name: str, plan: TransferPlan) -> tuple[Any, ...]:
    total = plan.cost.total_usd
    return (
        name,
        f"{plan.throughput_gbps:.2f}",
        f"{plan.cost.usd_per_gb:.4f}",
        f"{plan.solver.gap:.2%}" if name[0].isdecimal() else "",
        "" if total is None else f"{total:.2f}",
        plan.instance_count,
        ", ".join(plan.relays) or "none",
    )
