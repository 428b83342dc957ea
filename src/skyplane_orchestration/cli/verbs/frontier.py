"""`frontier`: what each further Gbit/s costs, beside the direct path and one relay."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.outcome import SUCCESS, refusing
from skyplane_orchestration.cli.session import open_client, require_writable
from skyplane_orchestration.cli.terminal import Terminal
from skyplane_orchestration.cli.verbs.plan import are_places, require_plain_regions
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.job import TransferJob

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.plan import TransferPlan

SCHEMA_VERSION: Final = 1
_FEWEST, _MOST = 2, 200


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
    arguments.add_limits(parser)
    arguments.add_deployment(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw price over throughput")
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        if options.plot is not None:
            require_writable(options.plot)
        client = open_client(options, grid=options.grid)
        plans = _frontier(options, client)
        marks = _marks(options, client, plans[0])
    found = {name: plan for name, plan in marks.items() if plan is not None}
    if options.plot is not None:
        from skyplane_orchestration.planner.chart import frontier_svg

        options.plot.write_text(frontier_svg(plans, found), encoding="utf-8")
    if terminal.is_json:
        terminal.write_json(_document(plans, marks))
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    columns = ("", ">Gbit/s", ">USD per GB", ">USD", ">instances", "relays")
    named = [*((str(number), plan) for number, plan in enumerate(plans, 1)), *found.items()]
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
    from skyplane_orchestration.credentials import CredentialSources
    from skyplane_orchestration.survey import locate

    job = TransferJob(
        source=arguments.location_from(options, "src"),
        destination=arguments.location_from(options, "dst"),
        volume_gb=options.volume_gb,
        objects=options.objects,
    )
    located = locate(job, CredentialSources())
    return located.source.region, located.destination.region


def _frontier(options: argparse.Namespace, client: Client) -> tuple[TransferPlan, ...]:
    """Raises SkyplaneError where there is no plan at all."""
    from skyplane_orchestration import planner

    src, dst = _ends(options, client)
    limits = arguments.limits_from(options)
    policy = arguments.policy_from(options, client.grid.tags)
    return planner.frontier(
        client.grid,
        src,
        dst,
        points=options.points,
        volume_gb=options.volume_gb,
        objects=options.objects,
        limits=limits,
        policy=policy,
    )


def _marks(
    options: argparse.Namespace, client: Client, plan: TransferPlan
) -> dict[str, TransferPlan | None]:
    """Both baselines with one instance per region; None where there is no such way."""
    from skyplane_orchestration.planner import best_relay, direct

    found: dict[str, TransferPlan | None] = {"direct": None, "ron": None}
    if not plan.edges:
        return found
    for name, way in (("direct", direct), ("ron", best_relay)):
        try:
            found[name] = way(
                client.grid,
                plan.src,
                plan.dst,
                1,
                plan.volume_gb,
                objects=options.objects,
                limits=arguments.limits_from(options),
            )
        except PlanInfeasible:
            continue
    return found


def _document(
    plans: tuple[TransferPlan, ...], marks: dict[str, TransferPlan | None]
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "src": plans[0].src,
        "dst": plans[0].dst,
        "points": [plan.to_dict() for plan in plans],
        **{name: plan and plan.to_dict() for name, plan in marks.items()},
    }


def _row(name: str, plan: TransferPlan) -> tuple[Any, ...]:
    total = plan.cost.total_usd
    return (
        name,
        f"{plan.throughput_gbps:.2f}",
        f"{plan.cost.usd_per_gb:.4f}",
        "" if total is None else f"{total:.2f}",
        plan.instance_count,
        ", ".join(plan.relays) or "none",
    )
