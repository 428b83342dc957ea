"""`transfer`: copies objects over a fleet that `provision` has started."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_fleet
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import job_from, require_writable
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.cli.progress import TransferProgress
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost, NotAuthorised
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.transfer.progress_log import heading
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("transfer", help="copy objects over a running fleet")
    arguments.add_ends(parser, arguments.ANY_PLACE)
    parser.add_argument(
        "--fleet", required=True, metavar="FLEET.json", help="output of provision; - for stdin"
    )
    arguments.add_selection(parser)
    arguments.add_budget(parser, "no limit")
    planner_options.add_learned_grid(parser)
    arguments.add_common(parser, run, has_run=True)


def run(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.storage.empty_source import named_in_errors
    from skyplane_orchestration.storage.preflight import require_usable

    with as_bad_input():
        fleet = read_fleet(options.fleet)
        # The same fleet and ends give the same transfer key, so a second call joins the transfer.
        client = open_client(options, run=options.run or fleet.key)
        job = job_from(options, policy=Policy(max_job_usd=options.max_job_usd))
        require_usable(job, options.manifest)
        with named_in_errors("destination"):
            client.check_place(job.destination)
        require_writable(job)
    result = _move(client, job, fleet, options.manifest, console)
    from skyplane_orchestration.cli.result_lines import print_result

    print_result(console, result)
    return SUCCESS


def _move(
    client: Client, job: TransferJob, fleet: Fleet, manifest: str | None, console: Console
) -> TransferResult:
    progress = TransferProgress(job, console)
    with as_bad_input(ConfigurationInvalid, ForeignHost, NotAuthorised):
        running = fleet, client.submit(job, fleet)

    def keep(fleet: Fleet, submitted: SubmittedTransfer) -> None:
        nonlocal running
        running = fleet, submitted

    try:
        console.info(heading(job))
        progress.on_fleet(fleet)
        watched = WatchedTransfer(job, *running)
        return client.finish(
            watched, on_status=progress.on_status, on_submitted=keep, manifest=manifest
        )
    except KeyboardInterrupt as error:
        progress.stop()
        client.cancel(*running)
        console.info("the transfer is cancelled; the fleet still runs")
        raise progress.interruption() from error
    finally:
        progress.stop()
