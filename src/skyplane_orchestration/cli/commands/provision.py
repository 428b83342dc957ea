"""`provision`: bring up the gateways of a plan, for `transfer` and `teardown`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client, read_plan, require_writable
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost, NotAuthorised
from skyplane_orchestration.formatting import counted


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("provision", help="bring up the gateways of a plan")
    parser.add_argument("plan", metavar="PLAN.json", help="what `plan --json` printed; - for stdin")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FLEET.json", help="write the fleet there, not stdout"
    )
    arguments.add_deployment(parser)
    arguments.add_run(parser)
    arguments.add_times(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        plan = read_plan(options.plan)
        if options.output is not None:
            require_writable(options.output)
        client = open_client(options, run=options.run or "")
    with refusing(ConfigurationInvalid, ForeignHost, NotAuthorised):
        fleet = client.provision(plan)
    document = fleet.to_dict()
    if options.output is None:
        terminal.write_json(document)
        return SUCCESS
    try:
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except BaseException:
        # Nobody would know of these gateways.
        client.teardown_after_error(fleet)
        raise
    if terminal.is_json:
        terminal.write_json(document)
    else:
        terminal.say(
            f"fleet {fleet.key}: {counted(len(fleet.gateways), 'gateway')}"
            f" up in {fleet.provision_s:.1f} s; see {options.output}"
        )
    return SUCCESS
