"""`status`: the state of a fleet's gateways and their transfers."""

from __future__ import annotations

import argparse
from typing import Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.documents import read_fleet
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input


def add(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser("status", help="print the state of a fleet and its transfers")
    parser.add_argument(
        "--fleet", required=True, metavar="FLEET.json", help="output of provision; - for stdin"
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 if a gateway does not respond."""
    from skyplane_orchestration.transfer.sessions import FleetSessions

    with as_bad_input():
        fleet = read_fleet(options.fleet)
        client = open_client(options)
        client.provisioner.check_host(fleet)
    with FleetSessions(fleet, client.authority(fleet.key)) as sessions:
        answers, errors = sessions.each_that_answers(
            fleet.gateways, lambda _, session: session.status()
        )
    gateways: dict[str, Any] = {
        **answers,
        **{node: {"error": error.to_dict()} for node, error in errors.items()},
    }
    if console.is_json:
        console.write_json({"fleet": fleet.key, "gateways": gateways})
    else:
        _print(gateways, console)
    return FAILED if errors else SUCCESS


def _print(gateways: dict[str, Any], console: Console) -> None:
    from skyplane_orchestration.cli.render import table
    from skyplane_orchestration.formatting import duration, size

    rows: list[tuple[str, ...]] = []
    transfers: list[tuple[str, ...]] = []
    for node, document in sorted(gateways.items()):
        if "error" in document:
            rows.append((node, "no response", "", "", document["error"]["message"]))
            continue
        connected = "connected" if document["connected"] else "not connected"
        lease = duration(document["lease_remaining_s"])
        rows.append((node, document["state"], connected, lease, ""))
        for key, status in document["leading"].items():
            copied = f"{status['copied']}/{status['objects']}"
            earlier = str(status.get("copied_earlier", 0))
            copied_bytes = size(status["copied_bytes"])
            transfers.append((key, status["state"], copied, earlier, copied_bytes, node))
    parts = [table(("gateway", "state", "connections", ">lease", ""), rows)]
    if transfers:
        columns = ("transfer", "state", ">objects", ">earlier", ">copied", "lead")
        parts.append(table(columns, transfers))
    console.print(*parts)
