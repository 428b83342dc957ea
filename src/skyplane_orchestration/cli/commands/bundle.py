"""`bundle`: writes a file with all that instances need, for networks without a package index."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import size
from skyplane_orchestration.provision.fleet.software import PYTHONS, write_bundle


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "bundle", help="write the gateway and its requirements into a file, for cloud instances"
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="what to write, such as bundle.zip")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="VERSION",
        help="version of the instances' Python: 3.11, 3.12 or 3.13 (repeatable; default:"
        f" {' and '.join(PYTHONS)}, those of Debian 12 and 13)",
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        for python in options.python:
            if not re.fullmatch(r"3\.1[123]", python):
                raise ConfigurationInvalid(
                    f"--python {python!r} is not a version that gateways run on; use 3.11, 3.12 or"
                    " 3.13"
                )
        if not options.file.parent.is_dir():
            raise ConfigurationInvalid(f"FILE: there is no folder {options.file.parent}")
    software = write_bundle(options.file, tuple(options.python) or PYTHONS)
    if console.is_json:
        facts = {"file": software.path, "bytes": software.size_bytes, "sha256": software.sha256}
        console.write_json(facts)
    else:
        console.print(
            f"{software.path}: {size(software.size_bytes)}, bundle_sha256: {software.sha256}"
        )
    return SUCCESS
