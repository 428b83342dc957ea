"""`status`: what the gateways of a fleet are doing."""

from __future__ import annotations

import argparse
from typing import Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client, read_fleet
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, refusing


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("status", help="what the gateways of a fleet are doing")
    parser.add_argument("--fleet", required=True, metavar="FLEET.json", help="- for stdin")
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code 1 when a gateway does not answer."""
    from skyplane_orchestration.transfer.sessions import FleetSessions

    with refusing():
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
    if terminal.is_json:
        terminal.write_json({"fleet": fleet.key, "gateways": gateways})
    else:
        _print(gateways, terminal)
    return FAILED if errors else SUCCESS


def _print(gateways: dict[str, Any], terminal: Terminal) -> None:
    from skyplane_orchestration.cli.render import table
    from skyplane_orchestration.formatting import duration, size

    rows: list[tuple[str, ...]] = []
    led: list[tuple[str, ...]] = []
    for node, document in sorted(gateways.items()):
        if "error" in document:
            rows.append((node, "no answer", "", "", document["error"]["message"]))
            continue
        connected = "connected" if document["connected"] else "not connected"
        lease = duration(document["lease_remaining_s"])
        rows.append((node, document["state"], connected, lease, ""))
        for key, status in document["leading"].items():
            copied = f"{status['copied']}/{status['objects']}"
            earlier = str(status.get("copied_earlier", 0))
            copied_bytes = size(status["copied_bytes"])
            led.append((key, status["state"], copied, earlier, copied_bytes, node))
    parts = [table(("gateway", "state", "connections", ">lease", ""), rows)]
    if led:
        parts.append(table(("transfer", "state", ">objects", ">earlier", ">copied", "lead"), led))
    terminal.answer({}, *parts)
