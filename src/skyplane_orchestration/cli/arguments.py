"""Arguments that several verbs share, and the values that they stand for."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn, get_args

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.job import (
    ConflictRule,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    TransferJob,
    Verification,
)
from skyplane_orchestration.location import Location
from skyplane_orchestration.region import KNOWN_CLOUDS

#: argparse's name for `parser.add_subparsers()`.
Subparsers = Any


class Parser(argparse.ArgumentParser):
    """A parser that raises ConfigurationInvalid instead of printing its usage."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today is ambiguous with the next option.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise ConfigurationInvalid(f"{message} (see {self.prog} --help)")


def commas(text: str) -> list[str]:
    """`a,b` -> [a, b]; blanks around a name do not count."""
    return [part.strip() for part in text.split(",") if part.strip()]


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE` -> (NAME, VALUE)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def number_above_zero(text: str) -> float:
    """A finite number; the option that it belongs to stands in argparse's message."""
    value = _number(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value


def number_from_zero(text: str) -> float:
    value = _number(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from zero up")
    return value


def share(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to below 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole_number_from(least: int) -> Callable[[str], int]:
    """The type of an option that counts something."""

    def whole_number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return whole_number


def vcpu_quota(text: str) -> tuple[str, int]:
    """`CLOUD=N` -> (CLOUD, N)."""
    cloud, count = instance_type(text)
    return cloud, whole_number_from(1)(count)


def instance_type(text: str) -> tuple[str, str]:
    """`CLOUD=TYPE` -> (CLOUD, TYPE); a cloud that nobody knows would be ignored silently."""
    cloud, name = pair(text)
    if cloud not in KNOWN_CLOUDS:
        raise argparse.ArgumentTypeError(
            f"unknown cloud {cloud!r}; use one of {', '.join(KNOWN_CLOUDS)}"
        )
    return cloud, name


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


def add_objective(
    parser: Parser,
    what: str = "one of these; default: the cheapest plan at the rate of the direct path",
) -> None:
    group = parser.add_argument_group("objective", what)
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--min-throughput-gbps", type=number_above_zero, metavar="X", help="cheapest at X Gbit/s"
    )
    one.add_argument(
        "--max-usd-per-gb", type=number_above_zero, metavar="Y", help="fastest for Y USD per GB"
    )
    one.add_argument(
        "--max-cost-usd", type=number_above_zero, metavar="Z", help="fastest for Z USD in all"
    )
    one.add_argument(
        "--deadline-s", type=number_above_zero, metavar="S", help="cheapest within S seconds"
    )
    group.add_argument(
        "--exactly", action="store_true", help="plan at X itself, even where faster is cheaper"
    )


def add_limits(parser: Parser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--volume-gb", type=number_above_zero, metavar="V", help="GB (1e9 B) to plan for"
    )
    group.add_argument(
        "--objects", type=whole_number_from(0), metavar="N", help="number of objects to plan for"
    )
    group.add_argument(
        "--instance-limit", type=whole_number_from(1), metavar="N", help="most instances per region"
    )
    group.add_argument(
        "--instance-type", action="append", default=[], type=instance_type, metavar="CLOUD=TYPE"
    )
    group.add_argument(
        "--exclude",
        action="extend",
        default=[],
        type=commas,
        metavar="REGION,...",
        help="regions (globs) that may not relay",
    )
    group.add_argument(
        "--allow",
        action="extend",
        default=[],
        type=commas,
        metavar="GLOB,...",
        help="regions that alone may relay",
    )
    group.add_argument(
        "--relays", type=whole_number_from(0), metavar="K", help="most relay regions"
    )
    group.add_argument(
        "--vcpu-quota",
        action="append",
        default=[],
        type=vcpu_quota,
        metavar="CLOUD=N",
        help="most vCPUs per region of that cloud",
    )
    for end, verb in (("source", "read"), ("destination", "write")):
        group.add_argument(
            f"--{end}-{verb}-gbps",
            type=number_above_zero,
            metavar="X",
            help=f"most that the {end}'s store lets {verb}",
        )
    group.add_argument(
        "--safety-margin",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of the grid's rates that is not counted on, such as 0.1",
    )
    group.add_argument(
        "--max-job-usd", type=number_above_zero, metavar="Z", help="refuse what costs more in all"
    )
    add_grid(parser)


def add_proof(parser: Parser) -> None:
    parser.add_argument(
        "--prove-s",
        type=number_from_zero,
        metavar="S",
        help="seconds for each attempt to prove that nothing is better (default: 0.15)",
    )


def add_grid(parser: Parser) -> None:
    parser.add_argument(
        "--grid", default="shipped", metavar="NAME|DIR", help="grid to plan on (default: shipped)"
    )
    parser.add_argument(
        "--price-overrides",
        metavar="FILE",
        help="agreed egress prices (.csv, .yaml): edge SRC>DST in globs, usd_per_gb or usd_per_gib",
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
        "--include", action="append", default=[], metavar="GLOB", help=f"{verb} these keys alone"
    )
    group.add_argument(
        "--exclude-keys", action="append", default=[], metavar="GLOB", help="leave out these keys"
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
    group.add_argument("--chunk-mib", type=int, default=Limits().chunk_mib, metavar="MIB")
    group.add_argument(
        "--manifest", metavar="PATH", help="path or URL for the list of all objects (Parquet)"
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


def objective_from(options: argparse.Namespace) -> Objective | None:
    """The objective that was asked for; None for the default.

    Raises ConfigurationInvalid for a number that cannot be meant.
    """
    if options.exactly and options.min_throughput_gbps is None:
        raise ConfigurationInvalid("--exactly belongs to --min-throughput-gbps")
    if options.min_throughput_gbps is not None:
        return MinimizeCost(options.min_throughput_gbps, exactly=options.exactly)
    if options.max_usd_per_gb is not None:
        return MaximizeThroughput(max_usd_per_gb=options.max_usd_per_gb)
    if options.max_cost_usd is not None:
        return MaximizeThroughput(max_cost_usd=options.max_cost_usd)
    if options.deadline_s is not None:
        return Deadline(options.deadline_s)
    return None


def location_from(options: argparse.Namespace, end: str) -> Location:
    """One end of a transfer. Raises InvalidLocation."""
    return Location(
        getattr(options, end),
        getattr(options, f"{end}_region"),
        getattr(options, f"{end}_endpoint"),
        getattr(options, f"{end}_credentials"),
        dict(getattr(options, f"{end}_option")),
    )


def limits_from(options: argparse.Namespace, *, chunk_mib: int | None = None) -> Limits:
    return Limits(
        instance_limit=options.instance_limit,
        instance_types=dict(options.instance_type),
        max_relays=options.relays,
        chunk_mib=Limits().chunk_mib if chunk_mib is None else chunk_mib,
        vcpu_quota=dict(options.vcpu_quota),
        source_read_gbps=options.source_read_gbps,
        destination_write_gbps=options.destination_write_gbps,
        safety_margin=options.safety_margin,
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
    )


def policy_from(options: argparse.Namespace, regions: Sequence[str]) -> Policy:
    """The regions that may carry bytes, and the most that a job may cost.

    Raises ConfigurationInvalid for a name or glob that is no region of the grid: a policy
    that does not bite would be found out by nobody.
    """
    from skyplane_orchestration.region import nearest_names

    for option, globs in (("--exclude", options.exclude), ("--allow", options.allow)):
        for glob in globs:
            if not any(fnmatchcase(tag, glob) for tag in regions):
                near = nearest_names(glob, regions)
                hint = f"did you mean {' or '.join(near)}?" if near else "it takes region tags"
                raise ConfigurationInvalid(
                    f"{option} {glob!r} is no region of the grid; {hint}"
                    " (objects are left out by --exclude-keys)"
                )
    return Policy(
        allow=tuple(options.allow),
        exclude=tuple(options.exclude),
        max_job_usd=options.max_job_usd,
    )
