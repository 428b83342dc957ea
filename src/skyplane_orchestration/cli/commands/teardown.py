"""`teardown`: take a fleet down, by its document or by its key."""

from __future__ import annotations

import argparse

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client, read_fleet
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost
from skyplane_orchestration.formatting import counted


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("teardown", help="take the gateways of a fleet down")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--fleet", metavar="FLEET.json", help="what `provision` wrote; - for stdin")
    which.add_argument("--fleet-key", metavar="KEY", help="where the document is lost")
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        fleet = options.fleet_key if options.fleet is None else read_fleet(options.fleet)
        client = open_client(options)
    with refusing(ConfigurationInvalid, ForeignHost):
        report = client.teardown(fleet)
    key = fleet if isinstance(fleet, str) else fleet.key
    if terminal.is_json:
        terminal.write_json({"fleet": key, "stopped": list(report.stopped)})
    else:
        from skyplane_orchestration.cli.render import plain

        names = ", ".join(report.stopped) or "nothing was running"
        terminal.answer(
            {}, plain(f"fleet {key}: {counted(len(report.stopped), 'gateway')} ended ({names})")
        )
    return SUCCESS
