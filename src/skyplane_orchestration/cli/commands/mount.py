"""`mount`: shows a place as a folder, by a tool that is installed."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.cli.option_parser import Subparsers, add_flags
from skyplane_orchestration.errors import ConfigurationInvalid, NotFound


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "mount", help="show a bucket as a folder until Ctrl-C, by rclone or the cloud's own tool"
    )
    parser.add_argument("src", metavar="URL", help="what to mount, such as s3://bucket/folder/")
    parser.add_argument("folder", metavar="DIR", type=Path, help="an empty folder")
    arguments.add_location(parser.add_argument_group("location"), "src", "place")
    add_flags(parser, read_only="let nobody write to DIR")
    arguments.add_output(parser)
    parser.set_defaults(run_command=run, parser=parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Ends with Ctrl-C, SIGTERM, or the end of the tool."""
    from skyplane_orchestration.security.store_credentials import CredentialSources
    from skyplane_orchestration.storage.mount import mounted

    with (
        as_bad_input(ConfigurationInvalid, NotFound),
        mounted(
            location_from(options, "src"), options.folder, CredentialSources(), options.read_only
        ) as mount,
        suppress(KeyboardInterrupt),
    ):
        if console.is_json:
            console.write_json({"folder": str(mount.folder), "tool": mount.tool})
        else:
            console.print(f"{options.src} is at {mount.folder} by {mount.tool}; Ctrl-C unmounts it")
        mount.wait()
    return SUCCESS
