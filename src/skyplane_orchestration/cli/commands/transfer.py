"""`transfer`: move objects over a fleet that `provision` has brought up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client, read_fleet
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.cli.interrupted import SoFar
from skyplane_orchestration.cli.preflight import check_destination
from skyplane_orchestration.cli.progress import progress_on
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost, NotAuthorised
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.transfer.control import SubmittedTransfer


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("transfer", help="move objects over a fleet that is up")
    arguments.add_ends(parser, "s3://bucket/key, file:///path or a path")
    parser.add_argument("--fleet", required=True, metavar="FLEET.json", help="- for stdin")
    arguments.add_selection(parser)
    arguments.add_budget(parser, "no limit")
    arguments.add_deployment(parser)
    arguments.add_run(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.storage.preflight import require_usable

    with refusing():
        fleet = read_fleet(options.fleet)
        # The same fleet and ends give the same transfer, so that a second call joins it.
        client = open_client(options, run=options.run or fleet.key)
        job = arguments.job_from(options, policy=Policy(max_job_usd=options.max_job_usd))
        require_usable(job, options.manifest)
        check_destination(client, job)
    result = _move(client, job, fleet, options.manifest, terminal)
    if terminal.is_json:
        terminal.write_json(result.to_dict())
    else:
        from skyplane_orchestration.cli.render import result_parts

        terminal.answer({}, *result_parts(result))
    return SUCCESS


def _move(
    client: Client, job: TransferJob, fleet: Fleet, manifest: str | None, terminal: Terminal
) -> TransferResult:
    progress = progress_on(terminal)
    so_far = SoFar(job, progress)
    with refusing(ConfigurationInvalid, ForeignHost, NotAuthorised):
        running = fleet, client.submit(job, fleet)

    def keep(fleet: Fleet, submitted: SubmittedTransfer) -> None:
        nonlocal running
        running = fleet, submitted

    try:
        terminal.say(heading(job))
        so_far.on_fleet(fleet)
        return client.wait(
            job, *running, on_status=so_far.on_status, on_submitted=keep, manifest=manifest
        )
    except KeyboardInterrupt as error:
        progress.stop()
        client.cancel(*running)
        terminal.say("the transfer is cancelled; the fleet is still up")
        raise so_far.interrupted() from error
    finally:
        progress.stop()
