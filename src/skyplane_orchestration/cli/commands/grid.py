"""`grid`: lists, shows, validates, imports and learns grids of regions, rates and prices."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.console import Console, print_error
from skyplane_orchestration.cli.exit_codes import BAD_INPUT, SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Parser, Subparsers, add_flags
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GridInvalid,
    PlanInfeasible,
    UnknownRegion,
)

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.grids.importers.write import Imported
    from skyplane_orchestration.grids.validate import Audit
    from skyplane_orchestration.model.plan import TransferPlan

#: Bad rows that are printed, in JSON too; the count includes all.
SHOWN_FINDINGS: Final = 100


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "grid", help="list, show, validate, import, profile or learn grids"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the shipped grid and the given directories")
    listing.add_argument("dirs", nargs="*", metavar="DIR", help="directory of a grid")
    listing.set_defaults(run_command=_list)
    show = actions.add_parser(
        "show", help="show counts, dates and provenance of a grid, or one edge with SRC DST"
    )
    show.add_argument("name", metavar="NAME|DIR", help="name or directory of a grid")
    show.add_argument("src", nargs="?", metavar="SRC", help="region tag")
    show.add_argument("dst", nargs="?", metavar="DST", help="region tag")
    show.add_argument("--price-overrides", metavar="FILE", help="agreed egress prices")
    planner_options.add_learned_grid(show)
    show.set_defaults(run_command=_show, parser=show)
    check = actions.add_parser("validate", help="list every bad row and every doubtful value")
    check.add_argument("name", metavar="DIR", type=Path, help="directory of a grid")
    check.set_defaults(run_command=_validate)
    _add_profile(actions)
    for action in (listing, show, check, _add_import(actions), _add_learn(actions)):
        arguments.add_output(action)


def _add_import(actions: Subparsers) -> Parser:
    parser: Parser = actions.add_parser(
        "import", help="make a grid directory from a Skyplane table or iperf3 results"
    )
    parser.add_argument(
        "source", metavar="SOURCE", type=Path, help="CSV file, or directory of JSON files"
    )
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="new directory")
    parser.add_argument(
        "--name", default="", metavar="N", help="name of the grid (default: name of DIR)"
    )
    parser.add_argument("--as-of", default="", metavar="DATE", help="date of the measurements")
    parser.add_argument(
        "--tier",
        default="PREMIUM",
        metavar="TIER",
        help="network tier of GCP rows (default: %(default)s)",
    )
    for name, what in (("latency", "round-trip"), ("prices", "price")):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"Skyplane's {what} table")
    parser.set_defaults(run_command=_import)
    return parser


def _add_profile(actions: Subparsers) -> None:
    parser: Parser = actions.add_parser(
        "profile", help="measure all pairs of some regions, and make a grid directory of the rates"
    )
    parser.add_argument("regions", nargs="+", metavar="REGION", help="region tags, two or more")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="new directory")
    parser.add_argument(
        "--name", default="", metavar="N", help="name of the grid (default: name of DIR)"
    )
    parser.add_argument(
        "--max-usd",
        type=float,
        default=0.0,
        metavar="Z",
        help="start only if it costs no more than Z; stop when it has cost Z (default: 0)",
    )
    planner_options.add_grid(parser)
    arguments.add_common(parser, _profile, has_times=True)


def _add_learn(actions: Subparsers) -> Parser:
    parser: Parser = actions.add_parser(
        "learn", help="add the rates that transfers have measured to a learned grid"
    )
    parser.add_argument(
        "results", nargs="+", metavar="RESULT.json", help="result of a transfer; - for stdin"
    )
    parser.add_argument(
        "--into",
        required=True,
        dest="learned_grid",
        metavar="DIR|URL",
        help="learned grid, which plans read with --learned-grid",
    )
    add_flags(parser, include_local="also learn from gateways that were processes of one machine")
    parser.set_defaults(run_command=_learn, parser=parser)
    return parser


# ---------------------------------------------------------------- list and show


def _list(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.grids import SHIPPED, load_grid

    with as_bad_input():
        found = {name: facts_of(load_grid(name)) for name in (SHIPPED, *options.dirs)}
    if console.is_json:
        console.write_json({"grids": [{"grid": name, **facts} for name, facts in found.items()]})
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    rows = [
        (name, facts["name"], facts["as_of"], sum(facts["regions"].values()), facts["throughput"])
        for name, facts in found.items()
    ]
    console.print(table(("grid", "name", "as of", ">regions", "throughput"), rows))
    return SUCCESS


def _show(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.grids.provenance import edge_facts, provenance_counts

    with as_bad_input():
        if options.src and not options.dst:
            raise ConfigurationInvalid("an edge has two ends: give both SRC and DST, or neither")
        grid = Client(
            grid=options.name,
            price_overrides=options.price_overrides,
            learned_grid=options.learned_grid,
        ).grid
        if options.src:
            edge = edge_facts(grid, options.src, options.dst)
    if options.src:
        _print_edge(edge, console)
        return SUCCESS
    facts = facts_of(grid)
    counts = provenance_counts(grid)
    if console.is_json:
        console.write_json({**facts, "provenance": counts})
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    _print_facts(facts, console)
    rows = [(one["value"], one["provenance"], one["as_of"] or "-", one["count"]) for one in counts]
    console.print(table(("value", "provenance", "as of", ">count"), rows))
    return SUCCESS


def facts_of(grid: Grid) -> dict[str, Any]:
    """Counts and provenance of a grid, as plain data."""
    off = [(i, j) for i in range(len(grid.tags)) for j in range(len(grid.tags)) if i != j]
    edges = Counter("measured" if grid.measured[pair] else "modelled" for pair in off)
    return {
        "name": grid.name,
        "as_of": grid.as_of,
        "source": grid.source,
        "licence": grid.licence,
        "notes": list(grid.notes),
        "regions": dict(Counter(region.cloud for region in grid.regions)),
        "edges": dict(edges),
        "throughput": next(iter(edges), "modelled") if len(edges) < 2 else "mixed",
        "prices": dict(Counter(str(grid.price_source[pair]) for pair in off)),
        "unverified_prices": sum(not region.price_verified for region in grid.regions),
        "instance_types": {
            cloud: [kind.name for kind in grid.types if kind.cloud == cloud]
            for cloud in dict.fromkeys(kind.cloud for kind in grid.types)
        },
    }


def _print_facts(facts: Mapping[str, Any], console: Console) -> None:
    from skyplane_orchestration.cli import render

    rows = []
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(
                f"{key}: {', '.join(one) if isinstance(one, list) else one}"
                for key, one in value.items()
            )
        elif isinstance(value, list):
            value = "\n".join(value)
        rows.append((name.replace("_", " "), str(value)))
    console.print(render.key_values(rows))


def _print_edge(edge: dict[str, Any], console: Console) -> None:
    if console.is_json:
        console.write_json(edge)
        return
    from skyplane_orchestration.cli import render

    rate, trip, price = edge["rate"], edge["round_trip"], edge["price"]
    samples = f", {rate['samples']} samples" if rate["samples"] else ""
    doubt = "" if price["verified"] else " (not verified)"
    rows = [
        ("edge", f"{edge['src']} -> {edge['dst']}"),
        ("distance", _or_unknown(edge["distance_km"], "km")),
        ("rate", f"{rate['gbps']:.3f} Gbit/s{samples} ({_origin(rate)})"),
        ("round trip", f"{_or_unknown(trip['ms'], 'ms')} ({_origin(trip)})"),
        ("price", f"${price['usd_per_gb']:.6g} per GB ({_origin(price)})"),
        ("billed as", f"${price['billed_usd']:.6g} per {price['unit']}{doubt}"),
        ("by", price["rule"]),
        ("source", price["source"] or "-"),
    ]
    for tag, end in edge["ends"].items():
        rows += _end_rows(tag, end)
    console.print(render.key_values(rows))


def _end_rows(tag: str, end: dict[str, Any]) -> list[tuple[str, str]]:
    requests = ", ".join(f"{verb} ${usd:g}" for verb, usd in end["request_usd_per_1000"].items())
    rows = [
        ("", ""),
        (tag, ""),
        ("1000 requests", f"{requests or 'unknown'} (rules, {end['request_as_of'] or '-'})"),
        ("bucket reads", _or_unknown(end["storage_read_gbps"], "Gbit/s", "not limited")),
        ("bucket writes", _or_unknown(end["storage_write_gbps"], "Gbit/s", "not limited")),
        ("vCPU quota", _or_unknown(end["vcpu_quota"], "vCPUs", "not given")),
    ]
    for kind in end["instance_types"]:
        figures = (
            f"{kind['vcpus']} vCPUs, out {kind['egress_gbps']:g} and in {kind['ingress_gbps']:g}"
            f" Gbit/s{_burst(kind)}, {kind['connection_limit']} connections,"
            f" ${kind['usd_per_hour']:g} an hour, at most {kind['instance_limit']}"
            f" ({_origin(kind)})"
        )
        rows.append((kind["name"], figures))
    return rows


def _burst(kind: Mapping[str, Any]) -> str:
    """The rates of a burst in words; empty without one."""
    rates = (("out", kind["burst_egress_gbps"]), ("in", kind["burst_ingress_gbps"]))
    burst_rates = " and ".join(f"{way} {rate:g}" for way, rate in rates if rate is not None)
    return f" sustained (burst: {burst_rates} for {kind['burst_s']:g} s)" if burst_rates else ""


def _origin(facts: Mapping[str, Any]) -> str:
    return f"{facts['provenance']}, {facts['as_of'] or 'no date'}"


def _or_unknown(value: float | None, unit: str, otherwise: str = "unknown") -> str:
    return otherwise if value is None else f"{value:g} {unit}"


# ---------------------------------------------------------------- validate and import


def _validate(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.grids.validate import audit_grid

    with as_bad_input():
        audit = audit_grid(options.name)
    if console.is_json:
        console.write_json(_audit_document(audit))
    else:
        _print_audit(options.name, audit, console)
    if audit.is_valid:
        return SUCCESS
    print_error(f"{options.name} is not a valid grid; errors: {len(audit.errors)}")
    return BAD_INPUT


def _audit_document(audit: Audit) -> dict[str, Any]:
    document: dict[str, Any] = {"valid": audit.is_valid}
    if audit.errors:
        document["error"] = GridInvalid(audit.errors[0].message).to_dict()
    for name, found in (("errors", audit.errors), ("warnings", audit.warnings)):
        document[f"{name}_found"] = len(found)
        document[name] = [
            {"file": one.file, "row": one.row, "message": one.message}
            for one in found[:SHOWN_FINDINGS]
        ]
    return document | (facts_of(audit.grid) if audit.grid else {})


def _print_audit(name: Path, audit: Audit, console: Console) -> None:
    from skyplane_orchestration.cli.render import text_line

    lines = [f"error: {one.message}" for one in audit.errors[:SHOWN_FINDINGS]]
    lines += [f"warning: {one.message}" for one in audit.warnings[:SHOWN_FINDINGS]]
    hidden = len(audit.errors) + len(audit.warnings) - len(lines)
    if hidden:
        lines.append(f"... and {hidden} more")
    if audit.grid is not None:
        size = len(audit.grid.tags)
        lines.append(f"{name}: valid, {size} regions, {size * (size - 1)} edges")
    console.print(*(text_line(line) for line in lines))


def _import(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.grids.importers.write import import_grid

    with as_bad_input():
        done = import_grid(
            options.source,
            options.out,
            name=options.name,
            as_of=options.as_of,
            tier=options.tier,
            latency=options.latency,
            prices=options.prices,
        )
    _print_import(done, console)
    return SUCCESS


def _profile(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.cli.client_factory import open_client
    from skyplane_orchestration.cli.render import cost_items
    from skyplane_orchestration.formatting import duration
    from skyplane_orchestration.grids.importers.write import require_free, write_profile

    def tell(plan: TransferPlan) -> None:
        seconds = plan.provision_s + (plan.transfer_s or 0.0)
        console.info(
            f"{len(plan.edges)} edges, {len(plan.instances)} instances, {duration(seconds)}:"
            f" {cost_items(plan.cost)}"
        )

    with as_bad_input():
        require_free(options.out)
        client = open_client(options)
    with as_bad_input(ConfigurationInvalid, PlanInfeasible, UnknownRegion):
        measured = client.profile(options.regions, max_usd=options.max_usd, on_plan=tell)
    _print_import(write_profile(options.out, measured, options.name), console)
    return SUCCESS


def _print_import(done: Imported, console: Console) -> None:
    found = done.measurements
    document = {
        "out": str(done.directory),
        "name": done.grid.name,
        "as_of": done.grid.as_of,
        "regions": len(done.grid.tags),
        "rates": len(found.rates),
        "pairs_measured_repeatedly": found.rates.repeated,
        "round_trips": len(found.rtts),
        "prices": len(found.prices),
        "skipped": dict(found.skipped),
        "sha256": found.sha256,
    }
    if console.is_json:
        console.write_json(document)
    else:
        _print_facts(document, console)


# ---------------------------------------------------------------- learn


def _learn(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.cli.document_files import read_result
    from skyplane_orchestration.security.store_credentials import CredentialSources
    from skyplane_orchestration.storage.rate_samples import require_learned_grid
    from skyplane_orchestration.transfer.learning import learn

    with as_bad_input():
        into = require_learned_grid(options.learned_grid)
        results = [(source, read_result(source)) for source in options.results]
    rows = []
    for source, result in results:
        why_not = learn(into, result, CredentialSources(), include_local=options.include_local)
        edges = [] if why_not else [f"{one.src} -> {one.dst}" for one in result.measured]
        rows.append({"result": source, "learned": edges, "left_out": why_not})
    if console.is_json:
        console.write_json({"into": into, "results": rows})
        return SUCCESS
    for row in rows:
        text = (
            f"nothing, because {row['left_out']}" if row["left_out"] else ", ".join(row["learned"])
        )
        console.print(f"{row['result']}: learned {text}")
    return SUCCESS
