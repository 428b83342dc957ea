"""`compare`: the optimal plans beside the baselines and the clouds' own services."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.cli.locations import (
    are_places,
    as_object_or_prefix,
    job_from,
    require_plain_regions,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.location import Location
    from skyplane_orchestration.planner import Comparison
    from skyplane_orchestration.planner.comparison import Way

#: Where files are: outside of every cloud.
_HERE: Final = "local:this-machine"
_WHAT: Final = (">Gbit/s", ">time", ">total", ">$/GB")
_ITEMS: Final = (">egress", ">instances", ">requests", ">service")
#: A row of everything; a narrower terminal gets what it is and what it is made of apart, and
#: the relays by number, with their names below.
_WHOLE: Final = (("way", *_WHAT, *_ITEMS, "relays"),)
_APART: Final = (("way", *_WHAT, ">relays"), ("way", *_ITEMS))
_WIDE: Final = 115


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser(
        "compare", help="the plan beside the direct path, one relay and the clouds' services"
    )
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    planner_options.add_objective(parser)
    planner_options.add_limits(parser)
    planner_options.add_proof(parser)
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
    from skyplane_orchestration.cli.render import plain

    is_wide = terminal.console().width >= _WIDE
    blocks = _WHOLE if is_wide else _APART
    tables = [part for columns in blocks for part in _table(comparison.ways, columns)]
    remarks = _remarks(comparison, with_relays=not is_wide)
    terminal.answer({}, *tables, *(plain(line) for line in remarks))
    return SUCCESS


def _comparison(options: argparse.Namespace, client: Client) -> Comparison:
    """Raises SkyplaneError where there is no plan for what was asked."""
    from skyplane_orchestration import planner

    limits = planner_options.limits_from(options)
    policy = planner_options.policy_from(options, client.grid.tags)
    objective = planner_options.objective_from(options)
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
        proof_s=planner_options.proof_s_from(options),
    )
    return replace(found, notes=(*found.notes, *notes))


def _region_of(location: Location) -> str:
    """Where an end is, as a service sees it: a file is in no cloud."""
    return _HERE if location.kind == "file" else location.region


# ---------------------------------------------------------------- for people


def _table(ways: Sequence[Way], columns: Sequence[str]) -> tuple[Table | Text, ...]:
    """A table without the columns that nobody fills, and a blank line; nothing for names alone."""
    from rich.text import Text

    from skyplane_orchestration.cli.render import table

    rows = [_cells(way) for way in ways]
    used = [column for column in columns if any(cells.get(column) for cells in rows)]
    if len(used) < 2:
        return ()
    return (table(used, [[cells.get(column, "") for column in used] for cells in rows]), Text())


def _cells(way: Way) -> dict[str, str]:
    """What stands in each column; a way that there is none of has its name alone."""
    from skyplane_orchestration.formatting import duration, usd

    if way.reason:
        return {"way": way.title, ">Gbit/s": "none"}
    amounts = {
        ">total": way.total_usd,
        ">egress": way.egress_usd,
        ">instances": way.instance_usd,
        ">requests": way.request_usd,
        ">service": way.service_usd,
    }
    return {
        "way": way.title,
        ">Gbit/s": "?" if way.throughput_gbps is None else f"{way.throughput_gbps:.2f}",
        ">time": "" if way.transfer_s is None else duration(way.transfer_s),
        ">$/GB": "" if way.usd_per_gb is None else f"{way.usd_per_gb:.4f}",
        "relays": ", ".join(way.relays),
        ">relays": str(len(way.relays) or ""),
        **{column: usd(amount) for column, amount in amounts.items() if amount is not None},
    }


def _remarks(comparison: Comparison, *, with_relays: bool) -> Iterable[str]:
    """A line per way: why there is none, or what it is and what is not counted."""
    for way in comparison.ways:
        over = [f"over {', '.join(way.relays)}"] if with_relays and way.relays else []
        words = [way.reason] if way.reason else [*way.notes, *over]
        if words:
            yield f"{way.title}: {'; '.join(words)}"
    yield "$/GB is egress, instances and fees per GB, without requests and fees per run"
    grids = [way.plan.grid for way in comparison.ways if way.plan is not None]
    yield f"grid: {grids[0].name} of {grids[0].as_of}, throughput {grids[0].throughput}"
    yield from comparison.notes
