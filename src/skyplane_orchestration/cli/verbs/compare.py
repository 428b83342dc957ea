"""`compare`: the optimal plan beside what there is without an optimiser."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.outcome import SUCCESS, refusing
from skyplane_orchestration.cli.session import open_client
from skyplane_orchestration.cli.terminal import Terminal
from skyplane_orchestration.cli.verbs.plan import make_plan
from skyplane_orchestration.errors import PlanInfeasible

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.plan import TransferPlan


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("compare", help="the plan beside the direct path and one relay")
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    arguments.add_objective(parser)
    arguments.add_limits(parser)
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        client = open_client(options, grid=options.grid)
        optimal = make_plan(options, client)
        plans = {"optimal": optimal, **_baselines(client, optimal, options)}
    if terminal.is_json:
        terminal.write_json({name: plan and plan.to_dict() for name, plan in plans.items()})
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    columns = ("way", ">Gbit/s", ">USD per GB", ">instances", ">s", ">USD", "relays")
    rows = [_row(name, plan) for name, plan in plans.items()]
    terminal.answer({}, table(columns, rows))
    return SUCCESS


def _baselines(
    client: Client, optimal: TransferPlan, options: argparse.Namespace
) -> dict[str, TransferPlan | None]:
    """With one instance, and with as many as the optimal plan has at the source.

    None where the grid has no such edge; nothing at all where no edge is needed.
    """
    from skyplane_orchestration.planner import best_relay, direct

    if not optimal.edges:
        return {}
    count = optimal.instances[optimal.src].count
    found: dict[str, TransferPlan | None] = {}
    for name, way, instances in (
        ("direct_single", direct, 1),
        ("direct", direct, count),
        ("best_relay", best_relay, count),
    ):
        try:
            found[name] = way(
                client.grid,
                optimal.src,
                optimal.dst,
                instances,
                optimal.volume_gb,
                objects=options.objects,
                limits=arguments.limits_from(options),
            )
        except PlanInfeasible:
            found[name] = None
    return found


def _row(name: str, plan: TransferPlan | None) -> tuple[Any, ...]:
    name = name.replace("_", " ")
    if plan is None:
        return (name, "no route", "", "", "", "", "")
    seconds, total = plan.transfer_s, plan.cost.total_usd
    return (
        name,
        f"{plan.throughput_gbps:.2f}",
        f"{plan.cost.usd_per_gb:.4f}",
        plan.instance_count,
        "" if seconds is None else f"{seconds:.1f}",
        "" if total is None else f"{total:.2f}",
        ", ".join(plan.relays) or "none",
    )
