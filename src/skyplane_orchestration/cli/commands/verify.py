"""`verify`: compares the objects at two locations."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.cli.option_parser import Subparsers, add_fields, add_flags
from skyplane_orchestration.errors import ConfigurationInvalid, EmptySource, NotFound
from skyplane_orchestration.model.job import TransferJob

if TYPE_CHECKING:
    from skyplane_orchestration.storage.compare import VerifyReport


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "verify", help="compare two locations: names, sizes and checksums of objects"
    )
    arguments.add_ends(parser, arguments.ANY_PLACE)
    group = arguments.add_keys(parser, "compare")
    what = "as in the copy: an object whose key DST cannot hold is missing, left out, or looked for"
    add_fields(group, TransferJob, on_illegal_key=f"{what} under its escaped key")
    add_flags(
        group,
        allow_empty="succeed if there is nothing to compare",
        extra="also list objects that exist only at DST",
    )
    add_flags(
        group.add_mutually_exclusive_group(),
        listing_only="compare names and sizes; read no object",
        download="read all objects at both ends and compare their SHA-256, whatever the stores say",
    )
    group.add_argument(
        "--parallel", type=int, metavar="N", help="objects to compare at the same time (default: 8)"
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 if an object differs."""
    with as_bad_input():
        client = open_client(options)
        job = TransferJob(
            location_from(options, "src"),
            location_from(options, "dst"),
            recursive=options.recursive,
            include=tuple(options.include),
            exclude=tuple(options.exclude),
            on_illegal_key=options.on_illegal_key,
            allow_empty=options.allow_empty,
        )
        for place in (job.source, job.destination):
            client.check_place(place)
    with as_bad_input(ConfigurationInvalid, EmptySource, NotFound):
        report = client.verify(
            job,
            with_extra=options.extra,
            listing_only=options.listing_only,
            download=options.download,
            parallel=options.parallel,
        )
    if console.is_json:
        console.write_json(report.to_dict())
    else:
        _print(report, console)
    return SUCCESS if report.is_equal else FAILED


def _print(report: VerifyReport, console: Console) -> None:
    from skyplane_orchestration.cli.render import SHOWN_ROWS, table, text_line

    shown = report.differences[:SHOWN_ROWS]
    rows = [(row.kind, row.source or row.destination, row.reason) for row in shown]
    parts = [table(("", "object", "why"), rows)] if rows else []
    left = report.objects - report.equal + (report.extra or 0) - len(shown)
    more = [text_line(f"and {left} more")] if left > 0 else []
    warnings = [text_line(f"warning: {one}") for one in report.warnings]
    console.print(*parts, *more, text_line(report.summary), *warnings)
