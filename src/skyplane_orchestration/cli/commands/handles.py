"""`handles`: lists the failed transfers that this machine can resume."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import SUCCESS
from skyplane_orchestration.cli.handle_files import handle_directory, saved_handles
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import duration


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "handles", help="list failed transfers that this machine can resume"
    )
    arguments.add_output(parser)
    parser.set_defaults(run_command=run, parser=parser)


def run(_: argparse.Namespace, console: Console) -> int:
    now = time.time()
    rows = [_document(name, text, now) for name, text in saved_handles(now)]
    if console.is_json:
        console.write_json({"handles": rows})
    elif rows:
        _print(rows, console, now)
    else:
        console.print(f"nothing to resume: {handle_directory()} has no handle of the last 24 h")
    return SUCCESS


def _document(name: str, text: str, now_unix_s: float) -> dict[str, Any]:
    from skyplane_orchestration.model.resume_handle import ResumeHandle

    try:
        handle = ResumeHandle.from_text(text)
    except ConfigurationInvalid as error:
        return {"id": name, "state": "damaged", "error": error.message}
    is_live = now_unix_s < handle.expires_unix_s
    return {
        "id": name,
        "state": "live" if is_live else "expired",
        "source": handle.job.source.url,
        "destination": handle.job.destination.url,
        "expires": datetime.fromtimestamp(handle.expires_unix_s, UTC).isoformat(),
        "expires_unix_s": handle.expires_unix_s,
        "deployment": handle.deployment,
        "fleet_key": handle.fleet_key,
        "transfer_key": handle.transfer_key,
        "move": handle.job.move,
        "delete": handle.job.delete,
    }


def _print(rows: list[dict[str, Any]], console: Console, now_unix_s: float) -> None:
    from skyplane_orchestration.cli.render import table, text_line

    def cells(row: dict[str, Any]) -> tuple[str, ...]:
        if row["state"] == "damaged":
            return row["id"], "damaged", "", row["error"]
        left = duration(row["expires_unix_s"] - now_unix_s) if row["state"] == "live" else "expired"
        return row["id"], left, row["source"], row["destination"]

    console.print(
        table(("id", "time left", "source", "destination"), map(cells, rows)),
        text_line("to resume one: skyplane-orch resume ID"),
    )
