"""`resume`: continues a failed transfer."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from skyplane_gateway.common.schema import parsed
from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client, print_may_still_run
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.document_files import read_text
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.cli.progress import TransferProgress
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    ForeignHost,
    NotAuthorised,
    SkyplaneError,
)
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import Fleet


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("resume", help="resume a failed transfer")
    parser.add_argument(
        "handle",
        metavar="HANDLE",
        help="the id printed by the failed transfer, the resume_handle of its result, or a file"
        " with the handle or with the output of --json; - for stdin",
    )
    arguments.add_manifest(parser)
    arguments.add_budget(parser, "the limit of the failed transfer, from zero again")
    planner_options.add_learned_grid(parser)
    arguments.add_gateway_credentials(parser)
    arguments.add_common(parser, run, has_times=True)


def run(options: argparse.Namespace, console: Console) -> int:
    from skyplane_orchestration.cli.handle_files import delete_handle
    from skyplane_orchestration.model.resume_handle import ResumeHandle

    with as_bad_input():
        handle = ResumeHandle.from_text(_read_handle(options.handle))
        for place in (handle.job.source, handle.job.destination):
            if place.credential_ref.startswith("airflow:"):  # Only Airflow can read them.
                raise ConfigurationInvalid(
                    f"this transfer takes its credentials {place.credential_ref!r} from an Airflow"
                    " connection; clear its task in Airflow, and the next try resumes the transfer"
                )
        client = open_client(options)
        client.check_place(handle.job.destination)
    progress = TransferProgress(handle.job, console)

    def on_fleet(fleet: Fleet) -> None:
        console.info(heading(handle.job))
        progress.on_fleet(fleet)

    try:
        with as_bad_input(ConfigurationInvalid, ForeignHost, NotAuthorised):
            result = client.resume(
                handle,
                on_fleet=on_fleet,
                on_status=progress.on_status,
                manifest=options.manifest,
                max_job_usd=options.max_job_usd,
            )
    except KeyboardInterrupt as error:
        is_up = _is_up(client, handle.fleet_key, options)
        raise progress.interruption(is_left_running=is_up) from error
    finally:
        progress.stop()
    delete_handle(options.handle)
    from skyplane_orchestration.cli.result_lines import print_result

    print_result(console, result)
    return SUCCESS


def _is_up(client: Client, key: str, options: argparse.Namespace) -> bool:
    """Whether a fleet runs; counts as running if that cannot be found out."""
    try:
        return bool(client.provisioner.describe(key))
    except SkyplaneError as error:
        print_may_still_run(options, key, error)
    return True


def _read_handle(given: str) -> str:
    """The handle of an id, a file, stdin or the argument itself. Raises ConfigurationInvalid."""
    from skyplane_orchestration.cli.handle_files import find_handle, handle_directory
    from skyplane_orchestration.model.resume_handle import PREFIX

    if given.startswith(PREFIX):
        return given
    if not given.strip():
        raise ConfigurationInvalid(
            "the resume handle is empty; give the id printed by the failed transfer, its"
            " resume handle, or a file with the handle"
        )
    saved = find_handle(given)
    # `Path.exists` raises for a text that is too long for a name, such as a damaged handle.
    if saved is None and given != "-" and not os.path.exists(given):  # noqa: PTH110
        raise ConfigurationInvalid(
            f"{given[:80]!r} is not an id in {handle_directory()}, a resume handle or a file;"
            " an id is valid for 24 h on the machine where the transfer failed"
        )
    text = read_text(given if saved is None else str(saved), "resume handle").strip()
    if not text.startswith("{"):
        return text
    # The output of --json.
    document = parsed(text, repr(given))
    result = document.get("result", document)
    handle = result.get("resume_handle") if isinstance(result, dict) else None
    if not isinstance(handle, str) or not handle:
        raise ConfigurationInvalid(f"the result in {given!r} has no resume handle")
    return handle
