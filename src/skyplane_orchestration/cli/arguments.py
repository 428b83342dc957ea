"""Arguments that several subcommands share."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from skyplane_gateway.common.job_options import ConflictRule, JobOptions, Verification
from skyplane_orchestration.cli.argument_types import header, keys_of_file, pair, written_as
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.option_parser import Parser, add_fields, add_flags, add_list
from skyplane_orchestration.client_settings import MEANINGS, PROVISIONERS, ClientSettings
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import LOCAL, SSH
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.job import Limits, Policy, TransferJob
from skyplane_orchestration.model.output_format import MANIFESTS
from skyplane_orchestration.provision.provisioner import FleetTimes

#: Prefix of an end's options -> name of the end.
END_NAMES: Final = {"src": "source", "dst": "destination"}

#: Runs a subcommand; returns its exit code.
RunCommand = Callable[[argparse.Namespace, Console], int]


def add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    add_flags(group, json="print one JSON object on stdout")
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


def add_optional_ends(parser: Parser, what: str) -> None:
    """Of `optional_job_from`: the places of a copy, and whether it is recursive."""
    add_ends(parser, what, is_optional=True)
    _add_recursive(parser, "copy")


def add_ends(parser: Parser, what: str, *, is_optional: bool = False) -> None:
    many: dict[str, Any] = {"nargs": "?"} if is_optional else {}
    parser.add_argument("src", metavar="SRC", help=f"source: {what}", **many)
    parser.add_argument("dst", metavar="DST", help=f"destination: {what}", **many)
    group = parser.add_argument_group("locations")
    for end, name in END_NAMES.items():
        add_location(group, end, name)


def add_location(group: argparse._ArgumentGroup, end: str, name: str) -> None:
    """Region, endpoint, credentials and options of a URL."""
    for field, metavar, what in (
        (
            "region",
            "REGION",
            f"region tag of the {name}, such as aws:us-east-1 (default: ask the store)",
        ),
        (
            "endpoint",
            "URL",
            f"address of the S3-compatible service or emulator of the {name}"
            " (default: $AWS_ENDPOINT_URL_S3, else $AWS_ENDPOINT_URL; for gs://"
            " $STORAGE_EMULATOR_HOST; for az:// that of $AZURE_STORAGE_CONNECTION_STRING)",
        ),
        (
            "credentials",
            "REF",
            f"credentials of the {name}: profile:NAME or env:PREFIX (default: your own)",
        ),
    ):
        group.add_argument(f"--{end}-{field}", default="", metavar=metavar, help=what)
    add_list(
        group,
        f"--{end}-option",
        "NAME=VALUE",
        f"option of the store of the {name}, for example checksum=trusted (repeatable)",
        type=pair,
    )


def add_keys(parser: Parser, verb: str) -> argparse._ArgumentGroup:
    """Options that select objects; returns their group."""
    group = parser.add_argument_group("objects")
    _add_recursive(group, verb)
    add_list(
        group,
        "--include",
        "GLOB",
        f"{verb} only objects whose key below SRC matches GLOB; * also matches slashes:"
        " *.csv matches a.csv and x/a.csv, a.csv only the first; tmp/ is all in folders of that"
        " name, /tmp/ all in that of SRC (repeatable)",
    )
    add_list(
        group,
        "--exclude",
        "GLOB",
        "skip objects whose key below SRC matches GLOB, even if --include matches"
        " (repeatable; for regions: --exclude-regions)",
    )
    return group


def _add_recursive(group: argparse._ActionsContainer, verb: str) -> None:
    group.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help=f"SRC is a prefix: {verb} all objects below it",
    )


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
    time = (
        "a duration before now such as 24h or 7d (s, m, h, d, w), a date, or a time such as"
        " 2026-01-31T06:00:00Z"
    )
    size = "a number and a unit B, K, M, G, T or P, in powers of 1024, such as 10M"
    add_fields(
        group,
        TransferJob,
        newer_than=f"TIME copy only objects that were modified at this time or later: {time}",
        older_than=f"TIME copy only objects that were modified before this time: {time}",
        min_size=f"SIZE skip smaller objects: {size}",
        max_size=f"SIZE skip larger objects: {size}",
    )


def add_selection(parser: Parser) -> None:
    group = add_keys(parser, "copy")
    _add_filters(group)
    _add_conflict(group)
    rules = {one.name: one.metadata.get("what", "") for one in fields(JobOptions)}
    add_fields(group, JobOptions, **{name: what for name, what in rules.items() if what})
    add_list(
        group,
        "--last",
        "GLOB",
        "write matching objects after all others, as _SUCCESS and table metadata (repeatable)",
        dest="publish_last",
    )
    _add_attributes(parser)
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
    add_fields(group, ClientSettings, manifest_key=f"REF {what_is('manifest_key')}")


def _add_conflict(group: argparse._ArgumentGroup) -> None:
    """The conflict rule, and the names that some rules have in rclone."""
    rules = group.add_mutually_exclusive_group()
    add_fields(rules, JobOptions, conflict="what to do if the object exists at the destination")
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


def _add_attributes(parser: Parser) -> None:
    """Headers and user metadata of the objects that are written."""
    group = parser.add_argument_group(
        "metadata", "of the objects that are written to a bucket, in place of that of SRC"
    )
    add_fields(
        group,
        TransferJob,
        content_type="TYPE such as text/html; charset=utf-8",
        cache_control="TEXT such as max-age=3600",
    )
    add_list(
        group,
        "--header",
        "NAME: TEXT",
        "Content-Disposition, Content-Encoding, Content-Language, and at S3 Expires (repeatable)",
        dest="headers",
        type=header,
    )
    add_list(
        group,
        "--metadata",
        "NAME=TEXT",
        "user metadata, in addition to that of SRC (repeatable)",
        dest="object_metadata",
        type=pair,
    )


def _add_demands(group: argparse._ArgumentGroup) -> None:
    """What has to hold for a copy to succeed."""
    check = group.add_mutually_exclusive_group()
    checks: tuple[tuple[str, Verification, str], ...] = (
        ("--verify", "reread", "read every written object back and compare it"),
        ("--no-verify", "none", "do not check written objects"),
    )
    for name, how, what in checks:
        check.add_argument(
            name,
            dest="verify",
            action="store_const",
            const=how,
            default=JobOptions().verify,
            help=what,
        )
    group.add_argument(
        "--no-guess-mime-type",
        dest="guess_mime_type",
        action="store_false",
        help="do not set a content type from the names of files",
    )


def _add_sending(group: argparse._ArgumentGroup) -> None:
    """How the bytes go."""
    add_fields(
        group,
        TransferJob,
        encrypt="encrypt from the source gateways to the sink gateways; auto: unless all are on one"
        " machine",
    )
    add_fields(
        group,
        Limits,
        chunk_mib="MIB largest object sent whole, and size of the parts of larger objects, 5 to 512"
        f" (default: {Limits().whole_mib}, and parts of {Limits().part_mib})",
    )
    add_fields(
        group,
        TransferJob,
        bwlimit="RATE send at most so many bytes per second: a number and a unit, as for"
        " --min-size, such as 10M (default: no limit)",
        server_side_copy="auto: in one region of one service the store itself copies large"
        " objects; never: all bytes pass through the gateways",
        probe="measure the edges of the gateways before the transfer, and plan again on the result;"
        " auto: where that takes little time and money",
    )


def add_budget(parser: Parser, default: str) -> None:
    """The highest cost of a transfer, for subcommands that make no plan."""
    what = f"Z stop the transfer when it has cost Z USD (default: {default})"
    add_fields(parser, Policy, max_job_usd=what)


def what_is(name: str) -> str:
    """The help of an option: the first sentence of what a setting of clients is."""
    what = MEANINGS[name]
    return what[0].lower() + what[1:].partition(". ")[0].rstrip(".")


def _add_deployment(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("fleet")
    group.add_argument(
        "--deployment",
        default=os.environ.get("SKYPLANE_DEPLOYMENT") or None,
        metavar="NAME",
        help=f"{what_is('deployment')} (default: $SKYPLANE_DEPLOYMENT, else local, and on clouds a"
        " name that is made once for this user)",
    )
    add_path = partial(group.add_argument, type=Path)
    add_path("--run-root", metavar="DIR", help=what_is("run_root"))
    group.add_argument(
        "--provisioner",
        choices=PROVISIONERS,
        default=LOCAL,
        help=f"{what_is('provisioner')} (default: local)",
    )
    for option in ("hosts", "clouds"):
        file = f"{option}_file"
        add_path(f"--{option}", dest=file, metavar="FILE", help=what_is(file))
    return group


def settle_deployment(options: argparse.Namespace) -> None:
    """Give a command without a deployment its name. Raises ConfigurationInvalid.

    Accounts of clouds are shared by many, so the name there is one that nobody else has.
    """
    if getattr(options, "deployment", "none") is not None:
        return
    options.deployment = DEFAULT_DEPLOYMENT
    if options.provisioner not in (LOCAL, SSH) or getattr(options, "cloud", None):
        from skyplane_orchestration.security.private_files import config_path, kept_text

        path = config_path("deployment")
        what, otherwise = "the name of this user's deployment", "use --deployment NAME"
        made = kept_text(path, what, lambda: f"cli-{secrets.token_hex(8)}", otherwise).strip()
        if not made:
            raise ConfigurationInvalid(f"{what} {path} is empty; delete it, or {otherwise}")
        options.deployment = made


def add_gateway_credentials(group: argparse._ActionsContainer) -> None:
    """What gateways on other machines get, for subcommands that may send it."""
    what = MEANINGS["gateway_credentials"]
    add_fields(group, ClientSettings, gateway_credentials=what[0].lower() + what[1:].rstrip("."))


def add_common(
    parser: Parser, run: RunCommand, *, has_run: bool = False, has_times: bool = False
) -> None:
    """The options of a subcommand with a client, and the function that runs it."""
    fleet = _add_deployment(parser)
    if has_run:
        parser.add_argument("--run", metavar="NAME", help="name of this run (default: a new name)")
        add_gateway_credentials(fleet)
    if has_times:
        what = (
            f"{what_is('processes_per_instance')} (default: $SKYPLANE_PROCESSES_PER_INSTANCE, else"
        )
        add_fields(
            fleet, ClientSettings, processes_per_instance=f"N {what} one per processor, 8 at most)"
        )
        leases = parser.add_argument_group(
            "leases", "gateways end by themselves when one of the times is over"
        )
        times = {
            one.name: f"S {what_is(one.name)} (default: {one.default:g} s)"
            for one in fields(FleetTimes)
        }
        add_fields(leases, FleetTimes, **times)
    add_output(parser)
    parser.set_defaults(run_command=run, parser=parser)
