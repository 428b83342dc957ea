"""`forecast`: the bill of a month for the recurring jobs of a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from skyplane_gateway.common.schema import parsed
from skyplane_orchestration.cli import planner_options
from skyplane_orchestration.cli.arguments import add_output
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_text
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import require_not_negative

if TYPE_CHECKING:
    from skyplane_orchestration.planner.forecasting import Forecast, MonthlyBill


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("forecast", help="show the bill of a month for recurring jobs")
    parser.add_argument("jobs", metavar="JOBS.yaml", help="the jobs: volume, schedule and growth")
    parser.add_argument(
        "--month",
        nargs="?",
        const="",
        default="",
        metavar="YYYY-MM",
        help="the month of the bill (default: this one)",
    )
    parser.add_argument(
        "--already-this-month-gb",
        "--already-this-month",
        type=float,
        default=0.0,
        metavar="GB",
        help="GB that each cloud has sent to the internet this month before these jobs",
    )
    planner_options.add_grid(parser)
    add_output(parser)
    parser.set_defaults(run_command=run, parser=parser)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        found = _forecast(options)
    if console.is_json:
        console.write_json(found.to_dict())
        return SUCCESS
    from skyplane_orchestration.cli.render import table, text_line
    from skyplane_orchestration.formatting import usd

    columns = ["job", "route", ">runs", ">TB", ">month"]
    rows = [
        (job.name, f"{job.src} > {job.dst}", f"{job.runs:.3g}", f"{job.month_gb / 1000:,.2f}",
         usd(job.usd))
        for job in found.jobs
    ]  # fmt: skip
    month_tb = sum(job.month_gb for job in found.jobs) / 1000
    total = ("all", "", "", f"{month_tb:,.2f}", usd(found.usd))
    remarks = [text for job in found.jobs for text in _remarks(job)]
    console.print(table(columns, [*rows, total]), *(text_line(text) for text in remarks))
    return SUCCESS


def _remarks(job: MonthlyBill) -> Iterator[str]:
    from skyplane_orchestration.formatting import usd

    others = [f"{way.title} {usd(way.usd)}" for way in job.ways[1:] if way.usd is not None]
    over = f" over {', '.join(job.ways[0].relays)}" if job.ways[0].relays else ""
    yield f"{job.name}: the cheapest plan{over}; alternatives: {', '.join(others) or 'none'}"
    yield from (f"{job.name}: {note}" for note in job.notes)


def _forecast(options: argparse.Namespace) -> Forecast:
    """Raises ConfigurationInvalid for a bad file, month or job, and PlanInfeasible."""
    import yaml

    from skyplane_orchestration.grids import load_grid
    from skyplane_orchestration.planner.forecasting import forecast, jobs_from

    require_not_negative("already_this_month_gb", options.already_this_month_gb)
    path = options.jobs
    try:
        jobs = jobs_from(parsed(read_text(path, "file of jobs"), path, yaml.safe_load))
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise ConfigurationInvalid(f"{path} is not YAML: {line}") from error
    grid = load_grid(options.grid, price_overrides=options.price_overrides)
    month = options.month or date.today().strftime("%Y-%m")
    return forecast(grid, jobs, month, options.already_this_month_gb)
