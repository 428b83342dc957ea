"""Arguments that several verbs share, and the values that they stand for."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from skyplane_orchestration.cli.argument_types import number_above_zero, pair, whole_number_from
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    ConflictRule,
    Limits,
    Objective,
    Policy,
    TransferJob,
    Verification,
)
from skyplane_orchestration.model.location import Location

#: argparse's name for `parser.add_subparsers()`.
Subparsers = Any


#: How alike two options are where one may be meant by the other.
_ALIKE: Final = 0.8


class Parser(argparse.ArgumentParser):
    """A parser that raises ConfigurationInvalid instead of printing its usage."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today is ambiguous with the next option.
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse what is not known here: the parser of the whole command names no verb's help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(
                unknown[0].partition("=")[0].lower(), self._option_string_actions, 1, _ALIKE
            )
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        raise ConfigurationInvalid(f"{message} (see {self.prog} --help)")


# ---------------------------------------------------------------- what is asked for


def add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    group.add_argument(
        "-v", "--verbose", action="count", default=0, help="log to stderr; twice for details"
    )


def add_ends(parser: Parser, what: str) -> None:
    parser.add_argument("src", metavar="SRC", help=f"source: {what}")
    parser.add_argument("dst", metavar="DST", help=f"destination: {what}")
    group = parser.add_argument_group("locations")
    for end, name in (("src", "source"), ("dst", "destination")):
        add_place(group, end, name)


def add_place(group: argparse._ArgumentGroup, end: str, name: str) -> None:
    """What completes a URL: region, endpoint, credentials, options."""
    group.add_argument(
        f"--{end}-region", default="", metavar="REGION", help=f"region tag of the {name}"
    )
    group.add_argument(
        f"--{end}-endpoint",
        default="",
        metavar="URL",
        help=f"address of the {name}'s S3-compatible service"
        " (default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)",
    )
    group.add_argument(
        f"--{end}-credentials",
        default="",
        metavar="REF",
        help=f"credentials of the {name}: profile:NAME or env:PREFIX",
    )
    group.add_argument(
        f"--{end}-option",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help=f"option of the {name}'s store, for example checksum=trusted",
    )


def add_keys(parser: Parser, verb: str) -> argparse._ArgumentGroup:
    """Which objects; returns the group, for what a verb has beside."""
    group = parser.add_argument_group("objects")
    group.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help=f"SRC is a prefix: {verb} what lies below it",
    )
    group.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help=f"{verb} these alone; GLOB has to match the whole key below SRC, and * also matches"
        " slashes: *.csv takes a.csv and x/a.csv, a.csv only the first (may be repeated)",
    )
    group.add_argument(
        "--exclude-keys",
        action="append",
        default=[],
        metavar="GLOB",
        help="leave these out, whatever --include says; GLOB as there (may be repeated)",
    )
    return group


def add_selection(parser: Parser) -> None:
    group = add_keys(parser, "copy")
    group.add_argument(
        "--conflict",
        choices=get_args(ConflictRule),
        default="replace",
        help="what to do with an object that is there already (default: %(default)s)",
    )
    group.add_argument(
        "--last",
        action="append",
        default=[],
        metavar="GLOB",
        help="write these after all others, beside _SUCCESS and table metadata",
    )
    check = group.add_mutually_exclusive_group()
    check.add_argument(
        "--verify", action="store_true", help="read every object back at the destination"
    )
    check.add_argument("--no-verify", action="store_true", help="do not check what was written")
    group.add_argument("--allow-empty", action="store_true", help="nothing to copy is success")
    group.add_argument(
        "--allow-failed", action="store_true", help="end well although single objects failed"
    )
    group.add_argument(
        "--strict-metadata",
        action="store_true",
        help="fail objects whose copies would lack tags, storage class, website redirect, Expires",
    )
    group.add_argument(
        "--no-guess-mime-type",
        action="store_true",
        help="give copies of files no content type by their names",
    )
    group.add_argument(
        "--chunk-mib",
        type=whole_number_from(1),
        default=Limits().chunk_mib,
        metavar="MIB",
        help="size of a chunk, and of an uploaded part, from 5 to 512 (default: %(default)s)",
    )
    group.add_argument(
        "--manifest", metavar="PATH", help="path or URL for the list of all objects (Parquet)"
    )


def add_budget(parser: Parser, default: str) -> None:
    """What a transfer may cost while it moves, for verbs that make no plan."""
    parser.add_argument(
        "--max-job-usd",
        type=number_above_zero,
        metavar="Z",
        help=f"stop the transfer when it has cost so much (default: {default})",
    )


def add_deployment(parser: Parser) -> None:
    group = parser.add_argument_group("fleet")
    group.add_argument(
        "--deployment",
        default=os.environ.get("SKYPLANE_DEPLOYMENT", "") or "local",
        metavar="NAME",
        help="whose fleets these are (default: $SKYPLANE_DEPLOYMENT, else local)",
    )
    group.add_argument(
        "--run-root", type=Path, metavar="DIR", help="directory of the gateways on this machine"
    )


def add_run(parser: Parser) -> None:
    parser.add_argument("--run", metavar="NAME", help="name of this run (default: a fresh one)")


def add_times(parser: Parser) -> None:
    group = parser.add_argument_group("leases", "gateways that nobody renews end by themselves")
    group.add_argument(
        "--start-within-s", type=float, metavar="S", help="from provision to transfer (900)"
    )
    group.add_argument(
        "--lease-s", type=float, metavar="S", help="after the last sign of life (120)"
    )
    group.add_argument("--hard-end-s", type=float, metavar="S", help="whatever happens (86400)")


# ---------------------------------------------------------------- what it stands for


def location_from(options: argparse.Namespace, end: str, url: str | None = None) -> Location:
    """One end of a transfer, or another URL with what completes it. Raises InvalidLocation."""
    return Location(
        getattr(options, end) if url is None else url,
        getattr(options, f"{end}_region"),
        getattr(options, f"{end}_endpoint"),
        getattr(options, f"{end}_credentials"),
        dict(getattr(options, f"{end}_option")),
    )


def verification_from(options: argparse.Namespace) -> Verification:
    if options.verify:
        return "reread"
    return "none" if options.no_verify else "stored"


def job_from(
    options: argparse.Namespace,
    *,
    objective: Objective | None = None,
    limits: Limits | None = None,
    policy: Policy | None = None,
    volume_gb: float | None = None,
    objects: int | None = None,
) -> TransferJob:
    """The job of a verb that moves bytes. Raises ConfigurationInvalid."""
    return TransferJob(
        source=location_from(options, "src"),
        destination=location_from(options, "dst"),
        objective=objective,
        recursive=options.recursive,
        include=tuple(options.include),
        exclude=tuple(options.exclude_keys),
        conflict=options.conflict,
        publish_last=tuple(options.last),
        verify=verification_from(options),
        allow_empty=options.allow_empty,
        allow_failed=options.allow_failed,
        limits=limits or Limits(chunk_mib=options.chunk_mib),
        policy=policy or Policy(),
        volume_gb=volume_gb,
        objects=objects,
        move=getattr(options, "move", False),
        strict_metadata=options.strict_metadata,
        guess_mime_type=not options.no_guess_mime_type,
    )
