"""`sweep`: remove what nobody will come back for: fleets, journals, their uploads."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, refusing
from skyplane_orchestration.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skyplane_orchestration.model.sweep_report import SweepReport, SweptPlace


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("sweep", help="remove abandoned fleets, journals and uploads")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
    parser.add_argument(
        "--older-than-s", type=float, metavar="N", help="also living fleets that are older"
    )
    group = parser.add_argument_group(
        "destinations", "what failed transfers left there, past its time"
    )
    group.add_argument(
        "--destination",
        action="append",
        default=[],
        metavar="URL",
        help="sweep below this folder as well; may be given more than once",
    )
    arguments.add_place(group, "dst", "destinations")
    group.add_argument(
        "--no-recursive",
        action="store_true",
        help="transfers to the destinations themselves alone, not to folders below",
    )
    group.add_argument(
        "--orphaned-uploads",
        action="store_true",
        help="abort old uploads that no journal names; without this they are listed",
    )
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code 1 when something could not be removed."""
    with refusing():
        if options.older_than_s is not None and not options.older_than_s >= 0:
            raise ConfigurationInvalid(
                f"--older-than-s cannot be negative: {options.older_than_s:g}"
            )
        _require_destination(options)
        places = [arguments.location_from(options, "dst", url) for url in options.destination]
        client = open_client(options)
    with refusing(ConfigurationInvalid):
        report = client.sweep(
            destinations=places,
            orphaned_uploads=options.orphaned_uploads,
            recursive=not options.no_recursive,
            dry_run=options.dry_run,
            older_than_s=options.older_than_s,
        )
    if terminal.is_json:
        terminal.write_json({"deployment": options.deployment, **report.to_dict()})
    else:
        _print(report, terminal)
    return FAILED if report.left else SUCCESS


def _require_destination(options: argparse.Namespace) -> None:
    """An option for destinations without one is a slip that would go unseen."""
    given = {
        "--orphaned-uploads": options.orphaned_uploads,
        "--no-recursive": options.no_recursive,
        "--dst-region": options.dst_region,
        "--dst-endpoint": options.dst_endpoint,
        "--dst-credentials": options.dst_credentials,
        "--dst-option": options.dst_option,
    }
    names = [name for name, value in given.items() if value]
    if names and not options.destination:
        raise ConfigurationInvalid(f"{names[0]} is of no use without --destination")


def _print(report: SweepReport, terminal: Terminal) -> None:
    from skyplane_orchestration.cli.render import plain, table

    done = "would be removed" if report.dry_run else "removed"
    rows = [
        (fleet.key, ", ".join(fleet.gateways), fleet.reason, fleet.error or done)
        for fleet in report.orphans
    ]
    parts = [table(("fleet", "gateways", "why", "outcome"), rows)] if rows else []
    lines = [plain(line) for place in report.places for line in _lines(place)]
    terminal.answer({}, *parts, *lines, plain(report.summary))


def _lines(place: SweptPlace) -> Iterator[str]:
    """Every transfer with the uploads that go with it, then what belongs to none.

    Whole lines and no table, which would cut names short.
    """
    from skyplane_orchestration.formatting import duration

    for row in place.transfers:
        why = f": {row.reason}" if row.reason else ""
        yield (
            f"{row.outcome}: journals of transfer {row.transfer_key} in {row.folder}, "
            f"last written {duration(row.age_s)} ago{why}"
        )
        for each in row.uploads:
            which = f"upload {each.upload_id}" if each.upload_id else "every open upload"
            yield f"  with {which} of {each.url}"
    for upload in place.uploads:
        why = f": {upload.reason}" if upload.reason else ""
        what = f"upload {upload.upload_id} of" if upload.upload_id else "unfinished file"
        yield f"{upload.outcome}: {what} {upload.url}, {duration(upload.age_s)} old{why}"
    if place.error:
        yield f"not swept to the end: {place.url}: {place.error}"
