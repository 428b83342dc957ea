"""`compare`: the optimal plans beside the baselines and the clouds' own services."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.outcome import SUCCESS, refusing
from skyplane_orchestration.cli.session import open_client
from skyplane_orchestration.cli.terminal import Terminal
from skyplane_orchestration.cli.verbs.plan import (
    are_places,
    as_object_or_prefix,
    job_from,
    require_plain_regions,
)

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.location import Location
    from skyplane_orchestration.planner import Comparison
    from skyplane_orchestration.planner.compare import Way

#: Where files are: outside of every cloud.
_HERE: Final = "local:this-machine"
_COLUMNS: Final = (
    "way", ">Gbit/s", ">time", ">egress", ">instances", ">requests", ">service", ">total",
    ">USD per GB", "relays",
)  # fmt: skip


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser(
        "compare", help="the plan beside the direct path, one relay and the clouds' services"
    )
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    arguments.add_objective(parser)
    arguments.add_limits(parser)
    arguments.add_proof(parser)
    arguments.add_deployment(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        client = open_client(options, grid=options.grid)
        comparison = _comparison(options, client)
    if terminal.is_json:
        terminal.write_json(comparison.to_dict())
        return SUCCESS
    from rich.text import Text

    from skyplane_orchestration.cli.render import table

    columns, rows = _without_empty_columns(_COLUMNS, [_row(way) for way in comparison.ways])
    remarks = (Text(line) for line in _remarks(client, comparison))
    terminal.answer({}, table(columns, rows), Text(), *remarks)
    return SUCCESS


def _comparison(options: argparse.Namespace, client: Client) -> Comparison:
    """Raises SkyplaneError where there is no plan for what was asked."""
    from skyplane_orchestration import planner

    limits = arguments.limits_from(options)
    policy = arguments.policy_from(options, client.grid.tags)
    objective = arguments.objective_from(options)
    src, dst, volume_gb, objects = options.src, options.dst, options.volume_gb, options.objects
    notes: tuple[str, ...] = ()
    if are_places(options, client.grid.tags):
        job, notes = as_object_or_prefix(job_from(options, client), client.measured)
        src, dst = _region_of(job.source), _region_of(job.destination)
        volume_gb, objects = job.volume_gb, job.objects
    else:
        require_plain_regions(options)
    found = planner.compare(
        client.grid,
        src,
        dst,
        objective,
        volume_gb=volume_gb,
        objects=objects,
        limits=limits,
        policy=policy,
        proof_s=planner.PROOF_S if options.prove_s is None else options.prove_s,
    )
    return replace(found, notes=(*found.notes, *notes))


def _region_of(location: Location) -> str:
    """Where an end is, as a service sees it: a file is in no cloud."""
    return _HERE if location.kind == "file" else location.region


# ---------------------------------------------------------------- for people


def _row(way: Way) -> tuple[str, ...]:
    from skyplane_orchestration.cli.render import duration, usd

    if way.reason:
        return (way.title, "none", *[""] * (len(_COLUMNS) - 2))
    amounts = (
        way.egress_usd,
        way.instance_usd,
        way.request_usd,
        way.service_usd,
        way.total_usd,
    )
    rate = way.throughput_gbps
    return (
        way.title,
        "unpublished" if rate is None else f"{rate:.2f}",
        "" if way.transfer_s is None else duration(way.transfer_s),
        *("" if amount is None else usd(amount) for amount in amounts),
        "" if way.usd_per_gb is None else f"{way.usd_per_gb:.4f}",
        ", ".join(way.relays),
    )


def _without_empty_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    return [columns[index] for index in used], [[row[index] for index in used] for row in rows]


def _remarks(client: Client, comparison: Comparison) -> Iterable[str]:
    """A line per way: why there is none, or what it is and what is not counted."""
    for way in comparison.ways:
        words = way.reason or "; ".join(way.notes)
        if words:
            yield f"{way.title}: {words}"
    yield "USD per GB is egress, instances and fees per GB, without requests and fees per run"
    grid = client.grid
    yield f"grid: {grid.name} of {grid.as_of}"
    yield from comparison.notes
