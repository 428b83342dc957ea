"""`sweep`: remove the deployment's fleets that nobody will come back for."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.outcome import FAILED, SUCCESS, refusing
from skyplane_orchestration.cli.session import open_client
from skyplane_orchestration.cli.terminal import Terminal
from skyplane_orchestration.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from skyplane_orchestration.provision.base import SweepReport


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("sweep", help="remove fleets that nobody will come back for")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
    parser.add_argument(
        "--older-than-s", type=float, metavar="N", help="also living fleets that are older"
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
        client = open_client(options)
    with refusing(ConfigurationInvalid):
        report = client.sweep(dry_run=options.dry_run, older_than_s=options.older_than_s)
    if terminal.is_json:
        terminal.write_json(
            {
                "deployment": options.deployment,
                "dry_run": report.dry_run,
                "orphans": [asdict(orphan) for orphan in report.orphans],
                "kept": list(report.kept),
            }
        )
    else:
        _print(report, terminal)
    return FAILED if report.failed else SUCCESS


def _print(report: SweepReport, terminal: Terminal) -> None:
    from rich.text import Text

    from skyplane_orchestration.cli.render import table

    done = "would be removed" if report.dry_run else "removed"
    rows = [
        (orphan.key, ", ".join(orphan.gateways), orphan.reason, orphan.error or done)
        for orphan in report.orphans
    ]
    summary = f"{len(report.orphans)} fleets {done}, {len(report.kept)} kept"
    parts = [table(("fleet", "gateways", "why", "outcome"), rows)] if rows else []
    terminal.answer({}, *parts, Text(summary))
