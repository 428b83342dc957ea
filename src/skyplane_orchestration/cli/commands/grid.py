"""`grid`: what the planner knows about the world, and where it has that from."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.console import Terminal, complain
from skyplane_orchestration.cli.exit_codes import BAD_INPUT, SUCCESS, refusing
from skyplane_orchestration.errors import ConfigurationInvalid, GridInvalid

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.grids.importers.write import Imported
    from skyplane_orchestration.grids.validate import Audit

#: Bad rows that are told one by one, in JSON too; there is a count of all.
SHOWN_FINDINGS: Final = 100


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("grid", help="look at grids: list, show, validate, import")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    shown = actions.add_parser("list", help="the grid that ships, and the given directories")
    shown.add_argument("dirs", nargs="*", metavar="DIR")
    shown.set_defaults(run_verb=_list)
    one = actions.add_parser(
        "show", help="counts, dates and provenance of a grid; all about one edge with SRC DST"
    )
    one.add_argument("name", metavar="NAME|DIR")
    one.add_argument("src", nargs="?", metavar="SRC", help="region tag")
    one.add_argument("dst", nargs="?", metavar="DST", help="region tag")
    _add_overrides(one)
    one.set_defaults(run_verb=_show)
    check = actions.add_parser("validate", help="name every bad row and every doubtful value")
    check.add_argument("name", metavar="DIR", type=Path)
    check.set_defaults(run_verb=_validate)
    for action in (shown, one, check, _add_import(actions)):
        arguments.add_output(action)


def _add_overrides(parser: arguments.Parser) -> None:
    parser.add_argument("--price-overrides", metavar="FILE", help="agreed egress prices")


def _add_import(actions: arguments.Subparsers) -> arguments.Parser:
    parser: arguments.Parser = actions.add_parser(
        "import", help="make a grid directory of a Skyplane table or a folder of iperf3 results"
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="CSV file, or folder of JSON")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="new directory")
    parser.add_argument("--name", default="", metavar="N", help="of the grid (default: DIR's)")
    parser.add_argument("--as-of", default="", metavar="DATE", help="of the measurements")
    parser.add_argument(
        "--tier", default="PREMIUM", metavar="TIER", help="network tier of GCP rows (PREMIUM)"
    )
    for name, what in (("latency", "round-trip"), ("prices", "price")):
        parser.add_argument(
            f"--{name}", type=Path, metavar="FILE", help=f"Skyplane's {what} table as well"
        )
    parser.set_defaults(run_verb=_import)
    return parser


# ---------------------------------------------------------------- list and show


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.grids import SHIPPED, load_grid

    with refusing():
        found = {name: facts_of(load_grid(name)) for name in (SHIPPED, *options.dirs)}
    if terminal.is_json:
        terminal.write_json({"grids": [{"grid": name, **facts} for name, facts in found.items()]})
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    rows = [
        (name, facts["name"], facts["as_of"], sum(facts["regions"].values()), facts["throughput"])
        for name, facts in found.items()
    ]
    terminal.answer({}, table(("grid", "name", "as of", ">regions", "throughput"), rows))
    return SUCCESS


def _show(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.grids import load_grid
    from skyplane_orchestration.grids.provenance import edge_facts, provenance_counts

    with refusing():
        if options.src and not options.dst:
            raise ConfigurationInvalid("an edge has two ends: give SRC and DST, or neither")
        grid = load_grid(options.name, price_overrides=options.price_overrides)
        if options.src:
            edge = edge_facts(grid, options.src, options.dst)
    if options.src:
        _print_edge(edge, terminal)
        return SUCCESS
    facts = facts_of(grid)
    counts = provenance_counts(grid)
    if terminal.is_json:
        terminal.write_json({**facts, "provenance": counts})
        return SUCCESS
    from skyplane_orchestration.cli.render import table

    _print_facts(facts, terminal)
    rows = [(one["value"], one["provenance"], one["as_of"] or "-", one["count"]) for one in counts]
    terminal.answer({}, table(("value", "provenance", "as of", ">count"), rows))
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


def _print_facts(facts: Mapping[str, Any], terminal: Terminal) -> None:
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
    terminal.answer({}, render.facts(rows))


def _print_edge(edge: dict[str, Any], terminal: Terminal) -> None:
    if terminal.is_json:
        terminal.write_json(edge)
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
    terminal.answer({}, render.facts(rows))


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
            f" Gbit/s, {kind['connection_limit']} connections, ${kind['usd_per_hour']:g} an hour,"
            f" at most {kind['instance_limit']} ({_origin(kind)})"
        )
        rows.append((kind["name"], figures))
    return rows


def _origin(facts: Mapping[str, Any]) -> str:
    return f"{facts['provenance']}, {facts['as_of'] or 'no date'}"


def _or_unknown(value: float | None, unit: str, otherwise: str = "unknown") -> str:
    return otherwise if value is None else f"{value:g} {unit}"


# ---------------------------------------------------------------- validate and import


def _validate(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.grids.validate import audit_grid

    with refusing():
        audit = audit_grid(options.name)
    if terminal.is_json:
        terminal.write_json(_audit_document(audit))
    else:
        _print_audit(options.name, audit, terminal)
    if audit.is_valid:
        return SUCCESS
    complain(f"{options.name} is no valid grid; errors: {len(audit.errors)}")
    return BAD_INPUT


def _audit_document(audit: Audit) -> dict[str, Any]:
    document: dict[str, Any] = {"valid": audit.is_valid}
    if audit.errors:
        # As every refusal of the command has it: the first one.
        document["error"] = GridInvalid(audit.errors[0].message).to_dict()
    for name, found in (("errors", audit.errors), ("warnings", audit.warnings)):
        document[f"{name}_found"] = len(found)
        document[name] = [
            {"file": one.file, "row": one.row, "message": one.message}
            for one in found[:SHOWN_FINDINGS]
        ]
    return document | (facts_of(audit.grid) if audit.grid else {})


def _print_audit(name: Path, audit: Audit, terminal: Terminal) -> None:
    from skyplane_orchestration.cli.render import plain

    lines = [f"error: {one.message}" for one in audit.errors[:SHOWN_FINDINGS]]
    lines += [f"warning: {one.message}" for one in audit.warnings[:SHOWN_FINDINGS]]
    hidden = len(audit.errors) + len(audit.warnings) - len(lines)
    if hidden:
        lines.append(f"... and {hidden} more")
    if audit.grid is not None:
        size = len(audit.grid.tags)
        lines.append(f"{name}: valid, {size} regions, {size * (size - 1)} edges")
    terminal.answer({}, *(plain(line) for line in lines))


def _import(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.grids.importers.write import import_grid

    with refusing():
        done = import_grid(
            options.source,
            options.out,
            name=options.name,
            as_of=options.as_of,
            tier=options.tier,
            latency=options.latency,
            prices=options.prices,
        )
    document = _import_document(done)
    if terminal.is_json:
        terminal.write_json(document)
    else:
        _print_facts(document, terminal)
    return SUCCESS


def _import_document(done: Imported) -> dict[str, Any]:
    found = done.measurements
    return {
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
