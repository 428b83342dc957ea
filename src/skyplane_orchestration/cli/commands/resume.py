"""`resume`: go on with a transfer that failed."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client, read_text
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.exit_codes import SUCCESS, refusing
from skyplane_orchestration.cli.interrupted import SoFar
from skyplane_orchestration.cli.progress import progress_on
from skyplane_orchestration.errors import ConfigurationInvalid, ForeignHost, NotAuthorised
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.resume_handle import ResumeHandle


def add(verbs: arguments.Subparsers) -> None:
    parser = verbs.add_parser("resume", help="resume a transfer that failed")
    parser.add_argument(
        "handle",
        metavar="HANDLE",
        help="the id that the failed transfer printed, or the resume handle of its result; "
        "or a file with the handle, or with what --json printed; - for stdin",
    )
    parser.add_argument(
        "--manifest", metavar="PATH", help="path or URL for the list of all objects (Parquet)"
    )
    arguments.add_budget(parser, "as much again as at first")
    arguments.add_deployment(parser)
    arguments.add_times(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    from skyplane_orchestration.cli.handle_files import forget_handle
    from skyplane_orchestration.model.resume_handle import ResumeHandle

    with refusing():
        handle = ResumeHandle.from_text(_text_of(options.handle))
        _require_credentials_of_the_command(handle)
        client = open_client(options)
        client.check_place(handle.job.destination)
    progress = progress_on(terminal)
    so_far = SoFar(handle.job, progress)

    def on_fleet(fleet: Fleet) -> None:
        terminal.say(heading(handle.job))
        so_far.on_fleet(fleet)

    try:
        with refusing(ConfigurationInvalid, ForeignHost, NotAuthorised):
            result = client.resume(
                handle,
                on_fleet=on_fleet,
                on_status=so_far.on_status,
                manifest=options.manifest,
                max_job_usd=options.max_job_usd,
            )
    except KeyboardInterrupt as error:
        is_up = bool(client.provisioner.find(handle.fleet_key))
        raise so_far.interrupted(is_left_running=is_up) from error
    finally:
        progress.stop()
    forget_handle(options.handle)
    if terminal.is_json:
        terminal.write_json(result.to_dict())
    else:
        from skyplane_orchestration.cli.render import result_parts

        terminal.answer({}, *result_parts(result))
    return SUCCESS


def _require_credentials_of_the_command(handle: ResumeHandle) -> None:
    """Raises ConfigurationInvalid for a transfer with credentials that only Airflow can read."""
    for place in (handle.job.source, handle.job.destination):
        if place.credential_ref.startswith("airflow:"):
            raise ConfigurationInvalid(
                f"the credentials {place.credential_ref!r} of this transfer are an Airflow "
                "connection; clear its task in Airflow, and the next try resumes the transfer"
            )


def _text_of(given: str) -> str:
    """The handle itself, wherever it stands. Raises ConfigurationInvalid."""
    from skyplane_orchestration.cli.handle_files import file_of_handle, handle_folder
    from skyplane_orchestration.model.resume_handle import PREFIX

    if given.startswith(PREFIX):
        return given
    if not given.strip():
        raise ConfigurationInvalid(
            "the resume handle is empty; give the id that the failed transfer printed, its "
            "resume handle, or a file with that"
        )
    kept = file_of_handle(given)
    # `Path.exists` raises for a text that is too long for a name, such as a damaged handle.
    if kept is None and given != "-" and not os.path.exists(given):  # noqa: PTH110
        raise ConfigurationInvalid(
            f"{given[:80]!r} is no id in {handle_folder()}, no resume handle and no file; "
            "ids are kept for 24 h on the machine where the transfer failed"
        )
    text = read_text(given if kept is None else str(kept), "resume handle").strip()
    if not text.startswith("{"):
        return text
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationInvalid(f"{given!r} is not JSON: {error}") from error
    result = document.get("result", document)
    handle = result.get("resume_handle") if isinstance(result, dict) else None
    if not isinstance(handle, str) or not handle:
        raise ConfigurationInvalid(f"the result in {given!r} has no resume handle")
    return handle
