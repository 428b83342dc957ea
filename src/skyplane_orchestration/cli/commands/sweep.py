"""`sweep`: removes abandoned fleets, and journals and uploads of failed transfers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.cli.locations import LOCATION_OPTIONS
from skyplane_orchestration.cli.option_parser import Subparsers, add_flags, add_list
from skyplane_orchestration.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skyplane_orchestration.model.sweep_report import SweepReport, SweptPlace


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("sweep", help="remove abandoned fleets, journals and uploads")
    add_flags(parser, dry_run="print what would be removed; remove nothing")
    parser.add_argument(
        "--older-than-s",
        type=float,
        metavar="N",
        help="also remove running fleets that are older than N seconds",
    )
    group = parser.add_argument_group(
        "destinations", "remove expired journals and uploads of failed transfers"
    )
    add_list(
        group,
        "--destination",
        "URL",
        "also sweep this destination and all folders below it (repeatable)",
    )
    arguments.add_location(group, "dst", "destinations")
    add_flags(
        group,
        no_recursive="sweep only the destinations themselves, not the folders below",
        orphaned_uploads="abort old uploads that no journal names (default: list them)",
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 if something could not be removed."""
    with as_bad_input():
        if options.older_than_s is not None and not options.older_than_s >= 0:
            raise ConfigurationInvalid(
                f"--older-than-s cannot be negative: {options.older_than_s:g}"
            )
        # Options of destinations.
        of_places = (
            "orphaned_uploads",
            "no_recursive",
            *(f"dst_{one}" for one in LOCATION_OPTIONS),
        )
        given = [name.replace("_", "-") for name in of_places if getattr(options, name)]
        if given and not options.destination:
            raise ConfigurationInvalid(f"--{given[0]} has no effect without --destination")
        places = [location_from(options, "dst", url) for url in options.destination]
        client = open_client(options)
    with as_bad_input(ConfigurationInvalid):
        report = client.sweep(
            destinations=places,
            orphaned_uploads=options.orphaned_uploads,
            recursive=not options.no_recursive,
            dry_run=options.dry_run,
            older_than_s=options.older_than_s,
        )
    if console.is_json:
        console.write_json({"deployment": options.deployment, **report.to_dict()})
    else:
        _print(report, console)
    return FAILED if report.left else SUCCESS


def _print(report: SweepReport, console: Console) -> None:
    from skyplane_orchestration.cli.render import table, text_line

    done = "would be removed" if report.dry_run else "removed"
    rows = [
        (fleet.key, ", ".join(fleet.gateways), fleet.reason, fleet.error or done)
        for fleet in report.orphans
    ]
    parts = [table(("fleet", "gateways", "why", "outcome"), rows)] if rows else []
    lines = [text_line(text) for place in report.places for text in _lines(place)]
    console.print(*parts, *lines, text_line(report.summary))


def _lines(place: SweptPlace) -> Iterator[str]:
    """A line per transfer and upload. A table would cut names short."""
    from skyplane_orchestration.formatting import duration

    for row in place.transfers:
        why = f": {row.reason}" if row.reason else ""
        yield (
            f"{row.outcome}: journals of transfer {row.transfer_key} in {row.folder}, "
            f"last written {duration(row.age_s)} ago{why}"
        )
        for own in row.uploads:
            which = f"upload {own.upload_id}" if own.upload_id else "every open upload"
            yield f"  with {which} of {own.url}"
    for upload in place.uploads:
        why = f": {upload.reason}" if upload.reason else ""
        what = f"upload {upload.upload_id} of" if upload.upload_id else "unfinished file"
        yield f"{upload.outcome}: {what} {upload.url}, {duration(upload.age_s)} old{why}"
    if place.error:
        yield f"not swept completely: {place.url}: {place.error}"
