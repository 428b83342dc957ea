"""`frontier`: what each further Gbit/s costs, beside the direct path, one relay and a choice."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client, require_writable, write_picture
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.cli.locations import are_places, require_plain_regions
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.model.job import TransferJob

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.planner.pareto import Frontier

SCHEMA_VERSION: Final = 1
_FEWEST, _MOST = 2, 200
#: The baselines: with one instance per region, and with all that the limits allow.
_MARKS: Final = ("direct_1", "direct_n", "ron_1", "ron_n")


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("frontier", help="the plans from the cheapest to the fastest")
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    parser.add_argument(
        "--points",
        type=_points,
        default=20,
        metavar="N",
        help=f"rates to plan for, {_FEWEST} to {_MOST} (default: %(default)s)",
    )
    planner_options.add_objective(parser, "one of these: its plan is marked as chosen")
    planner_options.add_limits(parser)
    planner_options.add_proof(parser)
    arguments.add_deployment(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw price over throughput")
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        if options.plot is not None:
            require_writable(options.plot)
        client = open_client(options, grid=options.grid)
        view = _view(options, client)
    if options.plot is not None:
        with refusing():
            write_picture(options.plot, _chart(view))
    if terminal.is_json:
        terminal.write_json(_document(view))
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    columns = ("", ">Gbit/s", ">USD per GB", ">gap", ">USD", ">instances", "relays")
    named = [(str(number), plan) for number, plan in enumerate(view.frontier, 1)]
    named += [("chosen", view.chosen)] if view.chosen else []
    named += [(_title(name, plan), plan) for name, plan in view.marks.items() if plan]
    terminal.answer({}, table(columns, [_row(name, plan) for name, plan in named]))
    return SUCCESS


def _points(text: str) -> int:
    if not text.isdecimal() or not _FEWEST <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {_FEWEST} to {_MOST}"
        )
    return int(text)


def _ends(options: argparse.Namespace, client: Client) -> tuple[str, str]:
    """The region tags of both ends; a bucket is asked for its region where none is given."""
    if not are_places(options, client.grid.tags):
        require_plain_regions(options)
        return options.src, options.dst
    from skyplane_orchestration.security.credentials import CredentialSources
    from skyplane_orchestration.storage.preflight import locate

    job = TransferJob(
        source=arguments.location_from(options, "src"),
        destination=arguments.location_from(options, "dst"),
        volume_gb=options.volume_gb,
        objects=options.objects,
    )
    located = locate(job, CredentialSources())
    return located.source.region, located.destination.region


@dataclass(frozen=True, slots=True)
class _View:
    """What is shown.

    Attributes:
        chosen: the plan of the objective; None where none was given.
        marks: the baselines by name; None where there is no such way.
    """

    frontier: Frontier
    chosen: TransferPlan | None
    marks: dict[str, TransferPlan | None]


def _view(options: argparse.Namespace, client: Client) -> _View:
    """Raises SkyplaneError where there is no plan at all, or none for the objective."""
    from skyplane_orchestration import planner

    objective = planner_options.objective_from(options)
    src, dst = _ends(options, client)
    asked: dict[str, Any] = {
        "volume_gb": options.volume_gb,
        "objects": options.objects,
        "limits": planner_options.limits_from(options),
        "policy": planner_options.policy_from(options, client.grid.tags),
        "proof_s": planner_options.proof_s_from(options),
    }
    chosen = planner.plan(client.grid, src, dst, objective, **asked) if objective else None
    found = planner.frontier(client.grid, src, dst, points=options.points, **asked)
    return _View(found, chosen, _marks(options, client, found[0]))


def _marks(
    options: argparse.Namespace, client: Client, plan: TransferPlan
) -> dict[str, TransferPlan | None]:
    """Both baselines, with one instance per region and with as many as the limits allow."""
    from skyplane_orchestration.planner.baselines import baselines

    if not plan.edges:
        return dict.fromkeys(_MARKS)
    found = baselines(
        client.grid,
        plan.src,
        plan.dst,
        plan.volume_gb,
        objects=options.objects,
        limits=planner_options.limits_from(options),
        policy=planner_options.policy_from(options, client.grid.tags),
    )
    return {
        name: None if isinstance(made, PlanInfeasible) else made
        for name, (_, made) in found.items()
    }


def _title(name: str, plan: TransferPlan) -> str:
    """`direct, 8 instances`: as many as the region with most of them has."""
    count = max(group.count for group in plan.instances.values())
    way = "RON" if name.startswith("ron") else "direct"
    return f"{way}, {count} instance{'s' if count > 1 else ''}"


def _chart(view: _View) -> str:
    from skyplane_orchestration.planner import frontier_svg

    marks = {_title(name, plan): plan for name, plan in view.marks.items() if plan is not None}
    return frontier_svg(view.frontier, marks, relaxed=view.frontier.relaxed, chosen=view.chosen)


def _document(view: _View) -> dict[str, Any]:
    first = view.frontier[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "src": first.src,
        "dst": first.dst,
        "points": [plan.to_dict() for plan in view.frontier],
        "relaxed": [
            {"throughput_gbps": gbps, "usd_per_gb": usd_per_gb}
            for gbps, usd_per_gb in view.frontier.relaxed.points
        ],
        "chosen": view.chosen and view.chosen.to_dict(),
        **{name: plan and plan.to_dict() for name, plan in view.marks.items()},
    }


def _row(name: str, plan: TransferPlan) -> tuple[Any, ...]:
    total = plan.cost.total_usd
    return (
        name,
        f"{plan.throughput_gbps:.2f}",
        f"{plan.cost.usd_per_gb:.4f}",
        f"{plan.solver.gap:.2%}" if name.isdecimal() else "",
        "" if total is None else f"{total:.2f}",
        plan.instance_count,
        ", ".join(plan.relays) or "none",
    )
