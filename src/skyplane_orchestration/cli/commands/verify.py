"""`verify`: compare what is at two places, object by object."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.argument_types import whole_number_from
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, refusing
from skyplane_orchestration.errors import EmptySource, NotFound

if TYPE_CHECKING:
    from skyplane_orchestration.storage.compare import VerifyReport


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("verify", help="compare two places: names, sizes, checksums")
    arguments.add_ends(parser, "s3://bucket/key, file:///path or a path")
    group = arguments.add_keys(parser, "compare")
    group.add_argument("--allow-empty", action="store_true", help="nothing to compare is equal")
    group.add_argument(
        "--extra", action="store_true", help="also objects that the source does not have"
    )
    group.add_argument(
        "--listing-only", action="store_true", help="names and sizes alone; reads nothing"
    )
    group.add_argument(
        "--parallel",
        type=whole_number_from(1),
        metavar="N",
        help="objects compared side by side (default: 8)",
    )
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code 1 when something differs."""
    with refusing():
        client = open_client(options)
        source = arguments.location_from(options, "src")
        destination = arguments.location_from(options, "dst")
        for place in (source, destination):
            client.check_place(place)
    with refusing(EmptySource, NotFound):
        report = client.verify(
            source,
            destination,
            recursive=options.recursive,
            include=tuple(options.include),
            exclude=tuple(options.exclude_keys),
            allow_empty=options.allow_empty,
            with_extra=options.extra,
            listing_only=options.listing_only,
            parallel=options.parallel,
        )
    if terminal.is_json:
        terminal.write_json(report.to_dict())
    else:
        _print(report, terminal)
    return SUCCESS if report.is_equal else FAILED


def _print(report: VerifyReport, terminal: Terminal) -> None:
    from skyplane_orchestration.cli.render import SHOWN_ROWS, plain, table
    from skyplane_orchestration.formatting import size

    shown = report.differences[:SHOWN_ROWS]
    rows = [(row.kind, row.source or row.destination, row.reason) for row in shown]
    extra = "" if report.extra is None else f", {report.extra} extra"
    compared = "checksums" if report.has_checksums else "names and sizes alone"
    summary = (
        f"{report.equal} of {report.objects} objects are equal ({size(report.size_bytes)}, by "
        f"{compared}); {report.missing} missing, {report.different} different, "
        f"{report.unreadable} unreadable{extra}; {size(report.read_bytes)} read"
    )
    parts = [table(("", "object", "why"), rows)] if rows else []
    left = report.objects - report.equal + (report.extra or 0) - len(shown)
    more = [plain(f"and {left} more")] if left > 0 else []
    terminal.answer({}, *parts, *more, plain(summary))
