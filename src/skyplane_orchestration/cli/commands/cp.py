"""`cp` and `sync`: plan, provision, transfer and tear down in one command."""

from __future__ import annotations

import argparse
import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args

from skyplane_gateway.common.quantities import size_text
from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client, print_may_still_run
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, BadInput, as_bad_input
from skyplane_orchestration.cli.job_from_options import job_from, require_writable
from skyplane_orchestration.cli.locations import further_locations
from skyplane_orchestration.cli.option_parser import Parser, Subparsers, add_fields, add_flags
from skyplane_orchestration.cli.progress import TransferProgress
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    DestinationsFailed,
    ForeignHost,
    NotAuthorised,
    SkyplaneError,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.delete_limit import DEFAULT_MAX_DELETE
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.transfer.job_run import JobRun


log = logging.getLogger(__name__)


def add(commands: Subparsers) -> None:
    copy = _add(commands, "cp", "copy objects: plan, provision, transfer and tear down")
    add_flags(copy, move="delete the objects at SRC after all copies are written and verified")
    # As other tools do: recursive, and only objects that differ.
    sync = _add(commands, "sync", "copy objects that are missing or different, as cp -r")
    sync.set_defaults(recursive=True, conflict="replace-if-different")
    add_flags(
        sync,
        delete="after all copies are verified, delete objects that exist only at DST; filters"
        " protect what they leave out",
    )
    add_fields(
        sync,
        TransferJob,
        max_delete="N|P% with --delete: refuse to run if it would delete more than N objects, or"
        f" more than P percent of those at DST (default: {DEFAULT_MAX_DELETE.replace('%', '%%')})",
    )
    add_flags(
        sync,
        allow_unmatched_patterns="with --delete: run even if an --exclude matches no key and seems"
        " to be meant for a folder",
    )


def _add(commands: Subparsers, name: str, what: str) -> Parser:
    parser: Parser = commands.add_parser(name, help=what)
    arguments.add_ends(parser, arguments.ANY_PLACE)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="DST",
        help="a further destination; what those in different regions share is sent once",
    )
    add_flags(parser, dry_run="print what would be copied; write nothing")
    arguments.add_selection(parser)
    parser.add_argument(
        "--gateways",
        choices=get_args(GatewayPlace),
        default="auto",
        help="whether gateways start outside this process; auto: not for a small job, of up to 64"
        " MB (4 GB within one region, 1 GB if it would need instances) (default: %(default)s)",
    )
    planner_options.add_objective(parser)
    planner_options.add_limits(parser, launches=True)
    arguments.add_common(parser, run, has_run=True, has_times=True)
    return parser


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        if options.dry_run and options.manifest:
            raise ConfigurationInvalid(
                "--manifest lists what was copied, and --dry-run copies nothing; use --json"
            )
        client = open_client(options, run=options.run or "")
        # The grid is read only if an option names regions or a grid.
        globs = (options.exclude_regions, options.allow_regions)
        names = (*globs, options.price_overrides, options.grid != "shipped")
        regions = client.grid.tags if any(names) else ()
        job = job_from(
            options,
            objective=planner_options.objective_from(options),
            limits=planner_options.limits_from(options),
            policy=planner_options.policy_from(options, regions),
        )
        further = further_locations(options, options.also)
        if further and options.dry_run:
            raise ConfigurationInvalid("--dry-run shows one destination; omit --also")
    if further:
        return _copy_to_all(client, job, further, options, console)
    with as_bad_input():
        job_run = client.job_run(job)
        if options.dry_run:
            return _dry_run(job, job_run, console)
        job_run.check()
        require_writable(job)
        result = None if options.manifest else job_run.unchanged()
    if result is None:
        with as_bad_input():
            plan = job_run.plan(may_assume=True)
        console.info(heading(job))
        console.info(
            f"plan: {plan.throughput_gbps:.2f} Gbit/s over {counted(len(plan.paths), 'path')},"
            f" {plan.cost.usd_per_gb:.4f} USD per GB"
            + (f", at most {size_text(job.bytes_per_s)}/s" if job.bytes_per_s else "")
            + (", large objects by the store itself" if plan.server_side_copy else "")
        )
        progress = TransferProgress(job, console)
        result = _copy(client, job_run, plan, options, progress)
    from skyplane_orchestration.cli.result_lines import print_result

    print_result(console, result)
    return SUCCESS


def _copy_to_all(
    client: Client,
    job: TransferJob,
    further: list[Location],
    options: argparse.Namespace,
    console: Console,
) -> int:
    from skyplane_orchestration.cli.result_lines import print_results

    progress = TransferProgress(job, console)
    try:
        found = client.run_to_all(
            job, further, manifest=options.manifest, on_fleet=progress.on_fleet
        )
    except DestinationsFailed as error:
        print_results(console, error.results, error)
        return FAILED
    except ConfigurationInvalid as error:
        raise BadInput(error) from error
    finally:
        progress.stop()
        _tear_down_leftovers(client, options)
    print_results(console, found)
    return SUCCESS


def _copy(
    client: Client,
    job_run: JobRun,
    plan: TransferPlan,
    options: argparse.Namespace,
    progress: TransferProgress,
) -> TransferResult:
    try:
        return job_run.run(
            plan,
            manifest=options.manifest,
            on_status=progress.on_status,
            on_fleet=progress.on_fleet,
        )
    except (ConfigurationInvalid, ForeignHost, NotAuthorised) as error:
        if progress.has_fleet:
            raise
        # Provisioning refused the request and has removed what it started.
        raise BadInput(error) from error
    except BaseException as error:
        progress.stop()
        _tear_down_leftovers(client, options)
        if isinstance(error, KeyboardInterrupt):
            raise progress.interruption() from error
        raise
    finally:
        progress.stop()


def _tear_down_leftovers(client: Client, options: argparse.Namespace) -> None:
    """Tear down a fleet that an interruption between two steps of the client left.

    An error is printed, since it must not hide the reason for this teardown.
    """
    key = client.identity.fleet_key()
    try:
        if client.provisioner.describe(key):
            client.teardown(key)
    except SkyplaneError as error:
        print_may_still_run(options, key, error)


# ---------------------------------------------------------------- dry run


def _dry_run(job: TransferJob, job_run: JobRun, console: Console) -> int:
    from skyplane_orchestration.storage.preflight import delete_row, preview_row
    from skyplane_orchestration.transfer.row_spool import RowSpool

    with closing(RowSpool()) as rows:
        names = ("objects", "bytes", "copy", "copy_bytes", "skip", "refuse", "missing")
        summary: dict[str, Any] = dict.fromkeys(names, 0)
        for selection in job_run.preview():
            row = preview_row(job, selection)
            summary["objects"] += 1
            summary["bytes"] += row["bytes"]
            summary[row["action"]] += 1
            summary["copy_bytes"] += row["bytes"] * (row["action"] == "copy")
            rows.add([row])
        if job.delete:
            limits, extra = job_run.preview_deletes()
            summary |= {"delete": 0, "delete_bytes": 0, "max_delete": limits.most}
            for info in extra:
                summary["delete"] += 1
                summary["delete_bytes"] += info.size_bytes
                rows.add([delete_row(job, info)])
            for warning in limits.warnings:
                log.warning("%s", warning)
        summary |= {"server_side_copy": job_run.may_copy_server_side(), "move": job.move}
        if console.is_json:
            console.write_rows("objects", rows.rows(), {"summary": summary})
        else:
            from skyplane_orchestration.cli.render import preview_parts

            console.print(*preview_parts(rows.rows(), summary))
    return SUCCESS
