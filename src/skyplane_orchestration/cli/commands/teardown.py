"""`teardown`: ends the gateways of a fleet, found by its document or its key."""

from __future__ import annotations

import argparse

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_fleet
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost
from skyplane_orchestration.formatting import counted


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("teardown", help="end the gateways of a fleet")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--fleet", metavar="FLEET.json", help="output of provision; - for stdin")
    which.add_argument("--fleet-key", metavar="KEY", help="key of the fleet, without its document")
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        fleet = options.fleet_key if options.fleet is None else read_fleet(options.fleet)
        client = open_client(options)
    with as_bad_input(ConfigurationInvalid, ForeignHost):
        report = client.teardown(fleet)
    key = fleet if isinstance(fleet, str) else fleet.key
    if console.is_json:
        console.write_json(
            {"fleet": key, "provisioner": options.provisioner, "stopped": list(report.stopped)}
        )
    else:
        from skyplane_orchestration.cli.render import text_line

        names = ", ".join(report.stopped) or f"nothing ran at --provisioner {options.provisioner}"
        console.print(
            text_line(f"fleet {key}: {counted(len(report.stopped), 'gateway')} ended ({names})")
        )
    return SUCCESS
