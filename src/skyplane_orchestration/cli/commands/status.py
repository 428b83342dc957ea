"""`status`: the state of a fleet's gateways and their transfers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_fleet
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.model.result import CostOutcome

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "status", help="print the state of a fleet, its transfers and their cost"
    )
    parser.add_argument(
        "--fleet", required=True, metavar="FLEET.json", help="output of provision; - for stdin"
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 if a gateway does not respond."""
    from skyplane_orchestration.transfer.fleet_sessions import FleetSessions

    with as_bad_input():
        fleet = read_fleet(options.fleet)
        client = open_client(options)
        client.provisioner.check_host(fleet)
    with FleetSessions(fleet, client.authority(fleet.key), client.provisioner.dial_to) as sessions:
        answers, errors = sessions.each_that_answers(
            fleet.gateways, lambda _, session: session.status()
        )
    gateways: dict[str, Any] = {
        **answers,
        **{node: {"error": error.to_dict()} for node, error in errors.items()},
    }
    cost, estimate = _cost(fleet, answers), fleet.plan.cost.total_usd
    if console.is_json:
        items = cost and cost.to_dict()
        console.write_json(
            {"fleet": fleet.key, "gateways": gateways, "cost": items, "estimated_usd": estimate}
        )
    else:
        _print(gateways, console)
        if cost is not None:
            from skyplane_orchestration.formatting import usd

            beside = "" if estimate is None else f"; estimated for the job: {usd(estimate)}"
            console.print(
                f"cost so far {usd(cost.total_usd)} at the plan's prices: egress"
                f" {usd(cost.egress_usd)}, instances {usd(cost.instance_usd)}, requests"
                f" {usd(cost.request_usd)}, other items {usd(sum(cost.other_usd.values()))}{beside}"
            )
    return FAILED if errors else SUCCESS


def _cost(fleet: Fleet, answers: Mapping[str, Mapping[str, Any]]) -> CostOutcome | None:
    """What the fleet has cost so far; None if no gateway answers.

    Also None without instances if no gateway leads.
    """
    from skyplane_orchestration.model.status import TransferStatus
    from skyplane_orchestration.transfer.actual_cost import cost_of, with_other_items
    from skyplane_orchestration.transfer.instance_meter import instances_usd

    if not answers:
        return None  # Its instances may have ended long ago.
    led = [
        TransferStatus.from_document(status)
        for document in answers.values()
        for status in document.get("leading", {}).values()
    ]
    rows = [cost_of(fleet, status, is_first=True) for status in led]
    if not rows and not fleet.instances:
        return None
    instances = sum(row.instance_usd for row in rows)
    cost = CostOutcome(
        egress_usd=sum(row.egress_usd for row in rows),
        instance_usd=instances_usd(fleet, time.time()) if fleet.instances else instances,
        request_usd=max((row.request_usd for row in rows), default=0.0),
    )
    copied_bytes = sum(status.copied_bytes - status.copied_earlier_bytes for status in led)
    return with_other_items(cost, fleet.plan, copied_bytes)


def _print(gateways: dict[str, Any], console: Console) -> None:
    from skyplane_orchestration.cli.render import table, text_line
    from skyplane_orchestration.formatting import duration
    from skyplane_orchestration.model.status import TransferStatus
    from skyplane_orchestration.transfer.progress_log import ProgressMeter, amount_of

    rows: list[tuple[str, ...]] = []
    errors: list[str] = []
    transfers: list[tuple[str, ...]] = []
    for node, document in sorted(gateways.items()):
        if "error" in document:
            rows.append((node, "no response", "", ""))
            errors.append(f"{node}: {document['error']['message']}")
            continue
        connected = "connected" if document["connected"] else "not connected"
        lease = duration(document["lease_remaining_s"])
        rows.append((node, document["state"], connected, lease))
        for key, status in document["leading"].items():
            copied = f"{status['copied']}/{status['objects']}"
            earlier = str(status.get("copied_earlier", 0))
            found = TransferStatus.from_document(status)
            amount = amount_of(found, ProgressMeter().measure(found))
            transfers.append((key, status["state"], copied, earlier, amount, node))
    parts = [table(("gateway", "state", "connections", ">lease"), rows)]
    if transfers:
        columns = ("transfer", "state", ">objects", ">earlier", ">copied", "lead")
        parts.append(table(columns, transfers))
    # In a table a long message would leave no room for the other columns.
    console.print(*parts, *map(text_line, errors))
