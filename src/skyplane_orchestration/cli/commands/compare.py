"""`compare`: optimal plans, baselines and the clouds' transfer services side by side."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.locations import (
    are_locations,
    as_prefix_or_object,
    planning_job,
    require_plain_regions,
)
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.model.source_contents import NOT_LISTED

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.location import Location
    from skyplane_orchestration.planner import Comparison
    from skyplane_orchestration.planner.pricing.way import Way

#: Region of files: outside of every cloud.
_HERE: Final = "local:this-machine"
_TOTALS: Final = (">Gbit/s", ">time", ">total", ">$/GB")
_ITEMS: Final = (">egress", ">instances", ">requests", ">service")
#: One wide table, or two narrow ones with the number of relays and their names below.
_ONE_TABLE: Final = (("way", *_TOTALS, *_ITEMS, "relays"),)
_TWO_TABLES: Final = (("way", *_TOTALS, ">relays"), ("way", *_ITEMS))
_MIN_WIDE_COLUMNS: Final = 115


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "compare", help="compare the plan with the direct path, one relay and cloud services"
    )
    arguments.add_ends(parser, "a URL, a path or a region tag such as aws:us-east-1")
    planner_options.add_objective(parser)
    planner_options.add_limits(parser)
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        client = open_client(options)
        comparison = _comparison(options, client)
    if console.is_json:
        console.write_json(comparison.to_dict())
        return SUCCESS
    from skyplane_orchestration.cli.render import text_line

    is_wide = console.rich().width >= _MIN_WIDE_COLUMNS
    layout = _ONE_TABLE if is_wide else _TWO_TABLES
    tables = [part for columns in layout for part in _table(comparison.ways, columns)]
    remarks = _remarks(comparison, with_relays=not is_wide)
    console.print(*tables, *(text_line(remark) for remark in remarks))
    return SUCCESS


def _comparison(options: argparse.Namespace, client: Client) -> Comparison:
    """Raises SkyplaneError if there is no plan."""
    from skyplane_orchestration import planner

    request = planner_options.request_from(options, client.grid.tags)
    objective = planner_options.objective_from(options)
    src, dst = options.src, options.dst
    notes: tuple[str, ...] = ()
    contents = NOT_LISTED
    if are_locations(options, client.grid.tags):
        job, notes = as_prefix_or_object(
            planning_job(options, client), lambda job: client.job_run(job).measured()
        )
        src, dst = _region_of(job.source), _region_of(job.destination)
        request |= {"volume_gb": job.volume_gb, "objects": job.objects}
        contents = job.contents
    else:
        require_plain_regions(options)
    within = client.grid_within_quotas((src, dst), request["policy"])
    grid = replace(within, contents=contents)
    hourly = client.default_objective.value_of_time_usd_per_hour
    found = planner.compare(grid, src, dst, objective, value_of_time_usd_per_hour=hourly, **request)
    return replace(found, notes=(*found.notes, *notes))


def _region_of(location: Location) -> str:
    """The region of an end; a file is in no cloud."""
    return _HERE if location.kind == "file" else location.region


# ---------------------------------------------------------------- text


def _table(ways: Sequence[Way], columns: Sequence[str]) -> tuple[Table | Text, ...]:
    """A table without its empty columns, and a blank line."""
    from rich.text import Text

    from skyplane_orchestration.cli.render import table

    rows = [_cells(way) for way in ways]
    used = [column for column in columns if any(cells.get(column) for cells in rows)]
    if len(used) < 2:
        return ()
    return (table(used, [[cells.get(column, "") for column in used] for cells in rows]), Text())


def _cells(way: Way) -> dict[str, str]:
    """The text of each column; a way that is not possible has only its name."""
    from skyplane_orchestration.formatting import duration, usd

    if way.reason:
        return {"way": way.title, ">Gbit/s": "none"}
    amounts = {
        ">total": way.total_usd,
        ">egress": way.egress_usd,
        ">instances": way.instance_usd,
        ">requests": way.request_usd,
        ">service": way.service_usd,
        ">other": way.other_usd,
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
    """A line per way: why it is not possible, or its notes."""
    for way in comparison.ways:
        over = [f"over {', '.join(way.relays)}"] if with_relays and way.relays else []
        remarks = [way.reason] if way.reason else [*way.notes, *over]
        if remarks:
            yield f"{way.title}: {'; '.join(remarks)}"
    yield "$/GB is egress, instances and fees per GB, without requests and fees per run"
    grids = [way.plan.grid for way in comparison.ways if way.plan is not None]
    yield f"grid: {grids[0].name} of {grids[0].as_of}, throughput {grids[0].throughput}"
    yield from comparison.notes
