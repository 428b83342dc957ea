"""`manifest`: lists, shows, compares, verifies and exports the manifest of a place."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.job_options import JobOptions
from skyplane_gateway.common.schema import encode
from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.argument_types import written_as
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console, printable
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.cli.option_parser import Parser, Subparsers, add_fields, add_flags
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.output_format import MANIFESTS

if TYPE_CHECKING:
    from skyplane_gateway.manifest.document import Snapshot
    from skyplane_orchestration.storage.manifest.place_manifest import PlaceManifest

_TIME: Final = "%Y-%m-%d %H:%M:%S"


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "manifest", help="list, show, compare, verify or export what a place was made of"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add(actions, "list", _list, "list the runs that have copied to a place")
    show = _add(actions, "show", _show, "list the objects as a run left them")
    _add_rows(show)
    diff = _add(actions, "diff", _diff, "list what came, changed and went between two runs")
    for name in ("before", "after"):
        diff.add_argument(
            name, nargs="?", metavar="RUN", help="number of a commit, or name of a run"
        )
    add_flags(diff, against_store="compare the manifest with what is at the place now")
    verify = _add(
        actions, "verify", _verify, "compare the manifest with the place; status 1 if it is wrong"
    )
    verify.add_argument(
        "--key",
        dest="public_key",
        metavar="REF",
        help="public Ed25519 key that has to have signed the manifest: a PEM file, or env:NAME",
    )
    export = _add(actions, "export", _export, "write the objects as a run left them to a file")
    _add_rows(export)
    export.add_argument(
        "--to",
        required=True,
        type=written_as(*MANIFESTS),
        metavar="PATH",
        help=f"path or URL, in the format of its suffix: {', '.join(MANIFESTS)} (default: Parquet)",
    )


def _add(actions: Subparsers, name: str, run: arguments.RunCommand, what: str) -> Parser:
    parser: Parser = actions.add_parser(name, help=what)
    parser.add_argument("src", metavar="URL", help=f"folder: {arguments.ANY_PLACE}")
    arguments.add_location(parser.add_argument_group("location"), "src", "place")
    add_fields(
        parser,
        JobOptions,
        manifest_at="PLACE that of the runs, for a manifest that lies apart from URL",
    )
    arguments.add_common(parser, run)
    return parser


def _add_rows(parser: Parser) -> None:
    parser.add_argument(
        "--run", metavar="RUN", help="number of a commit, or name of a run (default: the newest)"
    )
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="only keys below URL that begin with it"
    )


def _opened(options: argparse.Namespace) -> PlaceManifest:
    place = location_from(options, "src")
    return open_client(options).manifest(place, manifest_at=options.manifest_at or "auto")


def _list(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        runs = _opened(options).runs
    if console.is_json:
        console.write_json({"url": options.src, "runs": [encode(one) for one in runs]})
    else:
        _print_runs(runs, {one.commit: "yes" if one.signature else "no" for one in runs}, console)
    return SUCCESS


def _print_runs(runs: Sequence[Snapshot], signed: Mapping[int, str], console: Console) -> None:
    from skyplane_orchestration.cli.render import table

    columns = (">commit", "time (UTC)", ">copied", ">deleted", "signed", "source", "run")
    rows = []
    for one in runs:
        time, counts = datetime.fromtimestamp(one.committed_unix_s, UTC), (one.copied, one.deleted)
        rows.append(
            (one.commit, f"{time:{_TIME}}", *counts, signed[one.commit], one.source, one.run)
        )
    console.print(table(columns, rows))


def _show(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.storage.manifest.rows import dicts_of
    from skyplane_orchestration.storage.object_manifest import in_plain_values

    with as_bad_input():
        manifest = _opened(options)
        rows = dicts_of(manifest.table(options.run, options.prefix))
    if console.is_json:
        run = encode(manifest.run(options.run))
        console.write_rows("rows", map(in_plain_values, rows), {"run": run})
    else:
        console.print_lines(map(_line, rows))
    return SUCCESS


def _line(row: Mapping[str, Any]) -> str:
    """Commit, time and size, then the key and the version of the source that it was made of."""
    store, at, endpoint = row["source_store"].partition(" at ")
    source = f"{store}{row['source_key']}{at}{endpoint} {row['source_version']}"
    head = f"{row['commit']:>4} {row['recorded']:{_TIME}} {row['bytes']:>10}"
    return f"{head} {printable(row['key'])} <- {printable(source)}"


def _diff(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        runs = [one for one in (options.before, options.after) if one is not None]
        if len(runs) != (0 if options.against_store else 2):
            raise ConfigurationInvalid("give two RUNs, or --against-store")
        manifest = _opened(options)
        found = encode(manifest.diff(*runs) if runs else manifest.verify().as_diff())
    if console.is_json:
        console.write_json(found)
        return SUCCESS
    for kind, keys in found.items():
        console.print_lines(f"{kind:<8} {printable(key)}" for key in keys)
    console.print(", ".join(f"{len(keys)} {kind}" for kind, keys in found.items()))
    return SUCCESS


def _verify(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 if something that the manifest says does not hold."""
    with as_bad_input():
        manifest = _opened(options)
    with as_bad_input(ConfigurationInvalid):
        report = manifest.verify(options.public_key)
    if console.is_json:
        console.write_json(report.to_dict())
    else:
        from skyplane_orchestration.cli.render import SHOWN_ROWS

        if options.public_key is not None:
            _print_runs(manifest.runs, report.signatures, console)
        left = len(report.findings) - SHOWN_ROWS
        more = [f"and {left} more"] if left > 0 else []
        console.print(*report.findings[:SHOWN_ROWS], *more, report.summary)
    return SUCCESS if report.is_equal else FAILED


def _export(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        url = _opened(options).export(options.to, options.run, options.prefix)
    if console.is_json:
        console.write_json({"url": url})
    else:
        console.print(f"written to {url}")
    return SUCCESS
