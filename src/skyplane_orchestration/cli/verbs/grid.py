"""`grid`: what the planner knows about the world, and where it has that from."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.outcome import SUCCESS, refusing
from skyplane_orchestration.cli.terminal import Terminal

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("grid", help="look at grids: list, show, validate")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    shown = actions.add_parser("list", help="the grid that ships, and the given directories")
    shown.add_argument("dirs", nargs="*", metavar="DIR")
    shown.set_defaults(run_verb=_list)
    one = actions.add_parser("show", help="counts, dates and provenance of one grid")
    one.add_argument("name", metavar="NAME|DIR")
    one.set_defaults(run_verb=_show)
    check = actions.add_parser("validate", help="load a directory; a bad row is named")
    check.add_argument("name", metavar="DIR", type=Path)
    check.set_defaults(run_verb=_validate)
    for action in (shown, one, check):
        arguments.add_output(action)


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

    with refusing():
        facts = facts_of(load_grid(options.name))
    _print_facts(facts, terminal)
    return SUCCESS


def _validate(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.grids import load_grid

    with refusing():
        facts = facts_of(load_grid(options.name))
    if terminal.is_json:
        terminal.write_json({"valid": True, **facts})
        return SUCCESS
    from rich.text import Text

    regions = sum(facts["regions"].values())
    edges = sum(facts["edges"].values())
    terminal.answer({}, Text(f"{options.name}: valid, {regions} regions, {edges} edges"))
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
        "throughput": next(iter(edges)) if len(edges) == 1 else "mixed",
        "prices": dict(Counter(str(grid.price_source[pair]) for pair in off)),
        "unverified_prices": sum(not region.price_verified for region in grid.regions),
        "instance_types": {
            cloud: [kind.name for kind in grid.types if kind.cloud == cloud]
            for cloud in dict.fromkeys(kind.cloud for kind in grid.types)
        },
    }


def _print_facts(facts: dict[str, Any], terminal: Terminal) -> None:
    if terminal.is_json:
        terminal.write_json(facts)
        return
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
