"""Options of the subcommands that plan: objective, limits, policy and grid, and their values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from skyplane_orchestration.cli.argument_types import commas, pair, vcpu_quota
from skyplane_orchestration.cli.arguments import what_is
from skyplane_orchestration.cli.job_from_options import fields_from
from skyplane_orchestration.cli.option_parser import Parser, add_fields, add_flags, add_list
from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    VALUE_OF_TIME_USD_PER_HOUR,
    Limits,
    Objective,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.objective_choice import OBJECTIVE_NAMES, chosen_objective


def add_objective(parser: Parser, what: str = "at most one") -> None:
    group = parser.add_argument_group("objective", what)
    add_fields(
        group.add_mutually_exclusive_group(),
        chosen_objective,
        min_throughput_gbps="X the cheapest plan at X Gbit/s or more",
        max_usd_per_gb="Y the fastest plan for at most Y USD per GB",
        max_cost_usd="Z the fastest plan for at most Z USD in total",
        deadline_s="S the cheapest plan that ends within S seconds, start of the gateways included",
    )
    add_fields(
        group,
        chosen_objective,
        objective="without any other: knee, the least sum of the bill and of the time, or"
        " cheapest, the cheapest plan at the rate of the direct path",
        value_of_time_usd_per_hour="V what an hour until the end is worth to the knee, or with"
        f" --min-throughput-gbps (default: {VALUE_OF_TIME_USD_PER_HOUR:g}; with"
        " --min-throughput-gbps 0)",
    )
    add_flags(
        group,
        exactly="with --min-throughput-gbps: plan for exactly X Gbit/s, even if a faster plan is"
        " cheaper",
    )


def add_limits(parser: Parser, *, launches: bool = False) -> None:
    """Limits, policy and grid; `launches` for subcommands that also start the gateways."""
    group = parser.add_argument_group("limits")
    add_fields(
        group,
        TransferJob,
        volume_gb="V GB (1e9 bytes) to copy; required for total costs and times between region"
        " tags",
        objects="N number of objects to copy, for the cost of requests",
    )
    add_fields(group, Limits, instance_limit="N maximum instances per region")
    add_list(
        group,
        "--instance-type",
        "CLOUD=TYPE",
        "instance type in all regions of that cloud (default: the best in each region)",
        dest="instance_types",
        type=pair,
    )
    what = "maximum vCPUs per region of that cloud"
    add_list(group, "--vcpu-quota", "CLOUD=N", what, type=vcpu_quota)
    add_fields(
        group,
        Limits,
        source_read_gbps="X maximum Gbit/s that the source's store delivers",
        destination_write_gbps="X maximum Gbit/s that the destination's store accepts",
        safety_margin="SHARE plan with rates between regions lowered by this share, such as 0.1",
        confidence="SHARE of transfers that are to reach the promised rate, which floors and"
        " deadlines count",
    )
    policy = _add_policy(parser)
    if launches:
        add_fields(
            policy,
            Policy,
            on_no_capacity="what to do if a cloud refuses an instance, by a quota or for want of"
            " capacity: replan for the same objective with what is left, or fail",
        )
    add_grid(parser)


def _add_policy(parser: Parser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("policy")
    for name, which in (
        ("exclude", "regions (globs) that must not relay, such as azure:*"),
        ("allow", "the only regions (globs) that may relay"),
    ):
        group.add_argument(
            f"--{name}-regions",
            action="extend",
            default=[],
            type=commas,
            metavar="GLOB,...",
            help=which,
        )
    group.add_argument(
        "--relays", dest="max_relays", type=int, metavar="K", help="maximum number of relay regions"
    )
    add_fields(
        group,
        Policy,
        max_job_usd="Z refuse a plan that costs more than Z USD, and stop a transfer that has cost"
        " Z USD",
        network_tier="how bytes leave Google Cloud and Azure for other clouds: premium; standard,"
        " where the region has it; or auto, the cheaper one in each region",
    )
    group.add_argument(
        "--already-this-month-gb",
        "--already-this-month",
        type=float,
        metavar="GB",
        help="GB that the account has sent to the internet this month before the job; prices fall"
        " with the volume of a month (default: what the learned grid says, else 0)",
    )
    add_fields(
        group,
        Policy,
        source_storage_class="storage class of the objects, for its price of reading them",
        key_requests="the ends in S3 that pay AWS KMS for each object, without a bucket key",
    )
    return group


def add_learned_grid(parser: Parser) -> None:
    add_fields(
        parser, ClientSettings, learned_grid=f"DIR|URL {what_is('learned_grid')} (default: none)"
    )


def add_grid(parser: Parser) -> None:
    parser.add_argument(
        "--grid", default="shipped", metavar="NAME|DIR", help="grid to plan on (default: shipped)"
    )
    add_learned_grid(parser)
    parser.add_argument(
        "--price-overrides",
        metavar="FILE",
        help="agreed egress prices (.csv, .yaml): edge SRC>DST in globs, usd_per_gb or usd_per_gib",
    )


# ---------------------------------------------------------------- values


def objective_from(options: argparse.Namespace) -> Objective | None:
    """The objective; None for the default. Raises ConfigurationInvalid."""
    if options.exactly and options.min_throughput_gbps is None:
        raise ConfigurationInvalid("--exactly needs --min-throughput-gbps")
    return chosen_objective(**{name: getattr(options, name) for name in OBJECTIVE_NAMES})


def limits_from(options: argparse.Namespace) -> Limits:
    given = fields_from(Limits, options)
    for name in ("instance_types", "vcpu_quota"):
        given[name] = dict(given[name])
    return Limits(**given)


def request_from(options: argparse.Namespace, regions: Sequence[str]) -> dict[str, Any]:
    """The arguments that all functions of the planner share. Raises ConfigurationInvalid."""
    return {
        "volume_gb": options.volume_gb,
        "objects": options.objects,
        "limits": limits_from(options),
        "policy": policy_from(options, regions),
    }


def policy_from(options: argparse.Namespace, regions: Sequence[str]) -> Policy:
    """The allowed regions and the highest cost of a job; errors as `require_known_regions`."""
    from skyplane_orchestration.transfer.planning import require_known_regions

    policy = Policy(**fields_from(Policy, options))
    require_known_regions(policy, regions)
    return policy
