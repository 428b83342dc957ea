"""`provision`: start the gateways of a plan, for `transfer` and `teardown`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.argument_types import written_as
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_plan, require_writable
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import optional_job_from
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost, NotAuthorised


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("provision", help="start the gateways of a plan")
    parser.add_argument("plan", metavar="PLAN.json", help="output of plan --json; - for stdin")
    what = "with both, no gateway starts that would get no credentials for them"
    arguments.add_optional_ends(parser, what)
    parser.add_argument(
        "-o",
        "--output",
        type=written_as(".json"),
        metavar="FLEET.json",
        help="write the fleet to a file (default: stdout)",
    )
    arguments.add_common(parser, run, has_run=True, has_times=True)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        plan = read_plan(options.plan)
        if options.output is not None:
            require_writable(options.output)
        job = optional_job_from(options)
        client = open_client(options, run=options.run or "")
    with as_bad_input(ConfigurationInvalid, ForeignHost, NotAuthorised):
        if job is not None:
            client.job_run(job).require_credentials(plan)
        fleet = client.provision(plan)
    document = fleet.to_dict()
    if options.output is None:
        console.write_json(document)
        return SUCCESS
    try:
        Path(options.output).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except BaseException:
        # Without the document the user could not use these gateways.
        client.teardown_after_error(fleet)
        raise
    if console.is_json:
        console.write_json(document)
    else:
        console.info(
            f"fleet {fleet.key}: {fleet.size} up in {fleet.provision_s:.1f} s; see {options.output}"
        )
    return SUCCESS
