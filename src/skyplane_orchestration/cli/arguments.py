"""Arguments that several subcommands share, and jobs and locations made from them."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from skyplane_gateway.config import (
    ArchivedObjectRule,
    ConflictRule,
    IllegalKeyRule,
    Verification,
)
from skyplane_orchestration.cli.argument_types import (
    keys_of_file,
    number_above_zero,
    pair,
    whole_number_from,
    written_as,
)
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.errors import ConfigurationInvalid, InvalidLocation
from skyplane_orchestration.model.fleet import LOCAL
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.job import (
    Encryption,
    Limits,
    Objective,
    Policy,
    ServerSideRule,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.output_format import MANIFESTS
from skyplane_orchestration.provision.choice import PROVISIONERS

log = logging.getLogger(__name__)

#: Options of stores that have an effect at the other end only.
_OF_OTHER_END: Final = {"src": ("acl", "sse", "sse-kms-key-id", "storage-class"), "dst": ("tags",)}

#: The result of `parser.add_subparsers()`; argparse has no public type for it.
Subparsers = Any

#: Runs a subcommand; returns its exit code.
RunCommand = Callable[[argparse.Namespace, Console], int]

#: Smallest similarity of an unknown option and the option that an error suggests.
_SIMILARITY: Final = 0.8


class Parser(argparse.ArgumentParser):
    """A parser that raises ConfigurationInvalid instead of printing its usage."""

    def __init__(self, **options: Any) -> None:
        # A new option could make today's abbreviation ambiguous.
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse unknown arguments here, so that the error names the subcommand's help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(
                unknown[0].partition("=")[0].lower(), self._option_string_actions, 1, _SIMILARITY
            )
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        raise ConfigurationInvalid(f"{message} (see {self.prog} --help)")


# ---------------------------------------------------------------- options


def add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    group.add_argument("-q", "--quiet", action="store_true", help="print no progress on stderr")
    group.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="write log messages to stderr; -vv writes more",
    )


#: What SRC and DST of a copy are.
ANY_PLACE: Final = "s3://bucket/key, gs://bucket/key, az://account/container/key or a path"


def add_ends(parser: Parser, what: str) -> None:
    parser.add_argument("src", metavar="SRC", help=f"source: {what}")
    parser.add_argument("dst", metavar="DST", help=f"destination: {what}")
    group = parser.add_argument_group("locations")
    for end, name in (("src", "source"), ("dst", "destination")):
        add_location(group, end, name)


def add_location(group: argparse._ArgumentGroup, end: str, name: str) -> None:
    """Region, endpoint, credentials and options of a URL."""
    group.add_argument(
        f"--{end}-region",
        default="",
        metavar="REGION",
        help=f"region tag of the {name}, such as aws:us-east-1 (default: ask the store)",
    )
    group.add_argument(
        f"--{end}-endpoint",
        default="",
        metavar="URL",
        help=f"address of the S3-compatible service or emulator of the {name}"
        " (default: $AWS_ENDPOINT_URL_S3, else $AWS_ENDPOINT_URL; for gs://"
        " $STORAGE_EMULATOR_HOST; for az:// that of $AZURE_STORAGE_CONNECTION_STRING)",
    )
    group.add_argument(
        f"--{end}-credentials",
        default="",
        metavar="REF",
        help=f"credentials of the {name}: profile:NAME or env:PREFIX (default: your own)",
    )
    group.add_argument(
        f"--{end}-option",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help=f"option of the store of the {name}, for example checksum=trusted (repeatable)",
    )


def add_keys(parser: Parser, verb: str) -> argparse._ArgumentGroup:
    """Options that select objects; returns their group."""
    group = parser.add_argument_group("objects")
    group.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help=f"SRC is a prefix: {verb} all objects below it",
    )
    group.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help=f"{verb} only objects whose key below SRC matches GLOB; * also matches slashes:"
        " *.csv matches a.csv and x/a.csv, a.csv only the first; tmp/ is all in folders of that"
        " name, /tmp/ all in that of SRC (repeatable)",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="skip objects whose key below SRC matches GLOB, even if --include matches"
        " (repeatable; for regions: --exclude-regions)",
    )
    group.add_argument("--exclude-keys", action="append", default=[], help=argparse.SUPPRESS)
    return group


def _add_filters(group: argparse._ArgumentGroup) -> None:
    """Filters by a list of keys, by time and by size."""
    lists = group.add_mutually_exclusive_group()
    for name, is_raw, what in (
        ("", False, "; lines that begin with # or ; are comments"),
        ("-raw", True, ", as they are: no comments, no blanks dropped"),
    ):
        lists.add_argument(
            f"--files-from{name}",
            action="extend",
            dest="files_from",
            type=partial(keys_of_file, is_raw=is_raw),
            metavar="FILE",
            help="copy only the keys in FILE, one per line, relative to SRC; - reads stdin"
            f"{what} (repeatable)",
        )
    for name, what in (("newer", "at this time or later"), ("older", "before this time")):
        group.add_argument(
            f"--{name}-than",
            metavar="TIME",
            help=f"copy only objects that were modified {what}: a duration before now such as"
            " 24h or 7d (s, m, h, d, w), a date, or a time such as 2026-01-31T06:00:00Z",
        )
    for name, what in (("min", "smaller"), ("max", "larger")):
        group.add_argument(
            f"--{name}-size",
            metavar="SIZE",
            help=f"skip {what} objects: a number and a unit B, K, M, G, T or P, in powers of"
            " 1024, such as 10M",
        )


def add_illegal_keys(group: argparse._ArgumentGroup, what: str) -> None:
    group.add_argument(
        "--on-illegal-key",
        choices=get_args(IllegalKeyRule),
        default="fail",
        help=f"{what} (default: %(default)s)",
    )


def add_selection(parser: Parser) -> None:
    group = add_keys(parser, "copy")
    _add_filters(group)
    _add_conflict(group)
    add_illegal_keys(
        group,
        "what to do with an object whose key DST cannot hold: fail it, skip it, or copy it under"
        " an escaped key",
    )
    group.add_argument(
        "--on-archived-object",
        choices=get_args(ArchivedObjectRule),
        default="fail",
        help="what to do with an object whose storage class must be restored before a read: fail"
        " it, skip it, or read it as any other (default: %(default)s)",
    )
    group.add_argument(
        "--last",
        action="append",
        default=[],
        metavar="GLOB",
        help="write matching objects after all others, as _SUCCESS and table metadata (repeatable)",
    )
    _add_demands(group)
    _add_sending(group)
    add_manifest(group)


def add_manifest(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--manifest",
        type=written_as(*MANIFESTS),
        metavar="PATH",
        help="write a list of all objects to a path or URL, in the format of its suffix:"
        f" {', '.join(MANIFESTS)} (default: Parquet)",
    )


def _add_conflict(group: argparse._ArgumentGroup) -> None:
    """The conflict rule, and the names that some rules have in rclone."""
    rules = group.add_mutually_exclusive_group()
    rules.add_argument(
        "--conflict",
        choices=get_args(ConflictRule),
        default="replace",
        help="what to do if the object exists at the destination (default: %(default)s)",
    )
    short: tuple[tuple[str, ConflictRule, str], ...] = (
        (
            "--checksum",
            "replace-if-checksum-differs",
            "size or checksum differs, whatever the times"
            " are; objects whose stores have no checksum in common are read",
        ),
        ("--size-only", "replace-if-size-differs", "the size differs"),
        ("--update", "replace-if-newer", "the source is newer, or as old and of another size"),
    )
    for name, rule, when in short:
        rules.add_argument(
            name,
            dest="conflict",
            action="store_const",
            const=rule,
            help=f"replace an object only if {when} (--conflict {rule})",
        )


def _add_demands(group: argparse._ArgumentGroup) -> None:
    """What has to hold for a copy to succeed."""
    check = group.add_mutually_exclusive_group()
    check.add_argument(
        "--verify", action="store_true", help="read every written object back and compare it"
    )
    check.add_argument("--no-verify", action="store_true", help="do not check written objects")
    group.add_argument(
        "--allow-empty", action="store_true", help="succeed if there is nothing to copy"
    )
    group.add_argument(
        "--allow-failed", action="store_true", help="succeed even if some objects fail"
    )
    group.add_argument(
        "--strict-metadata",
        action="store_true",
        help="fail an object if its copy would lose tags, storage class, a hold or other metadata",
    )
    group.add_argument(
        "--no-guess-mime-type",
        action="store_true",
        help="do not set a content type from the names of files",
    )


def _add_sending(group: argparse._ArgumentGroup) -> None:
    """How the bytes go."""
    group.add_argument(
        "--encrypt",
        choices=get_args(Encryption),
        default="auto",
        help="encrypt from the source gateways to the sink gateways; auto: unless all are on one"
        " machine (default: %(default)s)",
    )
    group.add_argument(
        "--chunk-mib",
        type=whole_number_from(1),
        metavar="MIB",
        help="largest object sent whole, and size of the parts of larger objects, 5 to 512"
        f" (default: {Limits().whole_mib}, and parts of {Limits().part_mib})",
    )
    group.add_argument(
        "--bwlimit",
        metavar="RATE",
        help="send at most so many bytes per second: a number and a unit, as for --min-size,"
        " such as 10M (default: no limit)",
    )
    group.add_argument(
        "--server-side-copy",
        choices=get_args(ServerSideRule),
        default="auto",
        help="auto: in one region of one service the store itself copies large objects; never:"
        " all bytes pass through the gateways (default: %(default)s)",
    )


def add_budget(parser: Parser, default: str) -> None:
    """The highest cost of a transfer, for subcommands that make no plan."""
    parser.add_argument(
        "--max-job-usd",
        type=number_above_zero,
        metavar="Z",
        help=f"stop the transfer when it has cost Z USD (default: {default})",
    )


def _add_deployment(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("fleet")
    group.add_argument(
        "--deployment",
        default=os.environ.get("SKYPLANE_DEPLOYMENT", "") or DEFAULT_DEPLOYMENT,
        metavar="NAME",
        help="installation that owns the fleets (default: $SKYPLANE_DEPLOYMENT, else local)",
    )
    group.add_argument(
        "--run-root",
        type=Path,
        metavar="DIR",
        help="directory of the gateways' files on this machine",
    )
    group.add_argument(
        "--provisioner",
        choices=PROVISIONERS,
        default=LOCAL,
        help="where gateways run: as processes of this machine, of machines over ssh, or on"
        " instances in all clouds of the clouds file, or in one of them (default: local)",
    )
    group.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="machines of each region, for --provisioner ssh",
    )
    group.add_argument(
        "--clouds",
        type=Path,
        metavar="FILE",
        help="what instances run, and the settings of each cloud, for --provisioner cloud, aws,"
        " gcp or azure",
    )
    return group


def add_common(
    parser: Parser, run: RunCommand, *, has_run: bool = False, has_times: bool = False
) -> None:
    """The options of a subcommand with a client, and the function that runs it."""
    fleet = _add_deployment(parser)
    if has_run:
        parser.add_argument("--run", metavar="NAME", help="name of this run (default: a new name)")
    if has_times:
        fleet.add_argument(
            "--processes-per-instance",
            type=whole_number_from(1),
            metavar="N",
            help="gateway processes of each instance (default: $SKYPLANE_PROCESSES_PER_INSTANCE,"
            " else one per processor, 8 at most)",
        )
        _add_times(parser)
    add_output(parser)
    parser.set_defaults(run_command=run)


def _add_times(parser: Parser) -> None:
    group = parser.add_argument_group(
        "leases", "gateways end by themselves when one of the times is over"
    )
    group.add_argument(
        "--start-within-s",
        type=float,
        metavar="S",
        help="seconds to wait for the transfer to start (default: 900)",
    )
    group.add_argument(
        "--lease-s",
        type=float,
        metavar="S",
        help="seconds without contact to this command (default: 120)",
    )
    group.add_argument(
        "--hard-end-s", type=float, metavar="S", help="seconds in all (default: 86400)"
    )


# ---------------------------------------------------------------- values


def location_from(options: argparse.Namespace, end: str, url: str | None = None) -> Location:
    """The location of an end (src, dst), or of `url` with that end's options.

    Raises InvalidLocation, also for an option that has no effect at this end.
    """
    place = Location(
        getattr(options, end) if url is None else url,
        getattr(options, f"{end}_region"),
        getattr(options, f"{end}_endpoint"),
        getattr(options, f"{end}_credentials"),
        dict(getattr(options, f"{end}_option")),
    )
    if url is None:
        _refuse_without_effect(place, end)
    return place


def _refuse_without_effect(place: Location, end: str) -> None:
    given = {"endpoint": place.endpoint_url, "credentials": place.credential_ref}
    names = [name for name, value in given.items() if value and place.kind == "file"]
    names += [f"option {name}" for name in place.options if name in _OF_OTHER_END[end]]
    if names:
        raise InvalidLocation(
            f"--{end}-{names[0]} has no effect for {place.url!r}; omit it, or give it for the other"
            " end"
        )


def verification_from(options: argparse.Namespace) -> Verification:
    if options.verify:
        return "reread"
    return "none" if options.no_verify else "stored"


def excluded_keys(options: argparse.Namespace) -> tuple[str, ...]:
    """The patterns of keys to leave out, with those of the option's old name."""
    if options.exclude_keys:
        log.warning("--exclude-keys is now --exclude; the next release refuses the old name")
    return (*options.exclude, *options.exclude_keys)


def _deletes_from(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a job for its deletes; only `sync` has these options."""
    most = getattr(options, "max_delete", None)
    is_sure = getattr(options, "allow_unmatched_patterns", False)
    if not getattr(options, "delete", False):
        if most is not None or is_sure:
            option = "--max-delete" if most is not None else "--allow-unmatched-patterns"
            raise ConfigurationInvalid(f"{option} needs --delete")
        return {}
    found = {"delete": True, "allow_unmatched_patterns": is_sure}
    return found if most is None else {**found, "max_delete": most}


def job_from(
    options: argparse.Namespace,
    *,
    objective: Objective | None = None,
    limits: Limits | None = None,
    policy: Policy | None = None,
    volume_gb: float | None = None,
    objects: int | None = None,
) -> TransferJob:
    """The job of a subcommand that copies. Raises ConfigurationInvalid."""
    return TransferJob(
        source=location_from(options, "src"),
        destination=location_from(options, "dst"),
        objective=objective,
        recursive=options.recursive,
        include=tuple(options.include),
        exclude=excluded_keys(options),
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
        **_deletes_from(options),
        strict_metadata=options.strict_metadata,
        guess_mime_type=not options.no_guess_mime_type,
        files_from=options.files_from,
        newer_than=options.newer_than,
        older_than=options.older_than,
        min_size=options.min_size,
        max_size=options.max_size,
        bwlimit=options.bwlimit,
        on_illegal_key=options.on_illegal_key,
        on_archived_object=options.on_archived_object,
        server_side_copy=options.server_side_copy,
        encrypt=options.encrypt,
    )
