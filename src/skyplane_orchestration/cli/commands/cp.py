"""`cp` and `sync`: plan, provision, transfer and tear down in one go."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Terminal, complain
from skyplane_orchestration.cli.exit_codes import SUCCESS, Refused, refusing
from skyplane_orchestration.cli.interrupted import SoFar
from skyplane_orchestration.cli.preflight import check_destination
from skyplane_orchestration.cli.progress import Progress, progress_on
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    ForeignHost,
    NotAuthorised,
    SkyplaneError,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.result import TransferResult


def add(verbs: arguments.Subparsers) -> None:
    copy = _add(verbs, "cp", "copy: plan, provision, transfer, teardown in one go")
    copy.add_argument(
        "--move",
        action="store_true",
        help="delete each object at SRC once its copy is verified and all has ended well",
    )
    # As with other tools of that name: below a prefix, and only what is not there already.
    sync = _add(verbs, "sync", "as cp -r, of objects that are missing or different")
    sync.set_defaults(recursive=True, conflict="replace-if-different")


def _add(verbs: arguments.Subparsers, name: str, what: str) -> arguments.Parser:
    parser: arguments.Parser = verbs.add_parser(name, help=what)
    arguments.add_ends(parser, "s3://bucket/key, file:///path or a path")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be copied; write nothing"
    )
    arguments.add_selection(parser)
    planner_options.add_objective(parser)
    planner_options.add_limits(parser)
    planner_options.add_proof(parser)
    arguments.add_deployment(parser)
    arguments.add_run(parser)
    arguments.add_times(parser)
    arguments.add_output(parser)
    parser.set_defaults(run_verb=run)
    return parser


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    with refusing():
        client = open_client(options, run=options.run or "", grid=options.grid)
        job = _job(options, client)
        if options.dry_run:
            return _dry_run(job, client, terminal)
        check_destination(client, job)
        client.check_move(job)
        result = None if options.manifest else client.unchanged(job)
    if result is None:
        with refusing():
            plan = client.plan(job, proof_s=options.prove_s)
        # Here, since a refusal is one line.
        terminal.say(heading(job))
        terminal.say(
            f"plan: {plan.throughput_gbps:.2f} Gbit/s over {counted(len(plan.paths), 'path')},"
            f" {plan.cost.usd_per_gb:.4f} USD per GB"
        )
        result = _copy(client, job, plan, options.manifest, progress_on(terminal))
    return _answer(result, terminal)


def _answer(result: TransferResult, terminal: Terminal) -> int:
    if terminal.is_json:
        terminal.write_json(result.to_dict())
    else:
        from skyplane_orchestration.cli.render import result_parts

        terminal.answer({}, *result_parts(result))
    return SUCCESS


def _job(options: argparse.Namespace, client: Client) -> TransferJob:
    return arguments.job_from(
        options,
        objective=planner_options.objective_from(options),
        limits=planner_options.limits_from(options, chunk_mib=options.chunk_mib),
        policy=planner_options.policy_from(options, _regions(options, client)),
        volume_gb=options.volume_gb,
        objects=options.objects,
    )


def _regions(options: argparse.Namespace, client: Client) -> Sequence[str]:
    """The grid's regions, where an option names some or another grid.

    Such an option is checked even if there is nothing to do; else the grid need not be read.
    """
    names = (options.exclude, options.allow, options.price_overrides, options.grid != "shipped")
    return client.grid.tags if any(names) else ()


def _copy(
    client: Client, job: TransferJob, plan: TransferPlan, manifest: str | None, progress: Progress
) -> TransferResult:
    so_far = SoFar(job, progress)
    try:
        return client.run(
            job,
            plan=plan,
            on_fleet=so_far.on_fleet,
            on_status=so_far.on_status,
            manifest=manifest,
        )
    except (ConfigurationInvalid, ForeignHost, NotAuthorised) as error:
        if progress.has_fleet:
            raise
        # Provisioning found that it cannot be done as asked, and has undone itself.
        raise Refused(error) from error
    except BaseException as error:
        progress.stop()
        _make_sure_that_it_is_gone(client)
        if isinstance(error, KeyboardInterrupt):
            raise so_far.interrupted() from error
        raise
    finally:
        progress.stop()


def _make_sure_that_it_is_gone(client: Client) -> None:
    """Take down what an interruption between two steps of the client has left."""
    key = client.identity.fleet_key()
    if not client.provisioner.find(key):
        return
    try:
        client.teardown(key)
    except SkyplaneError as error:
        complain(f"{error}; see skyplane-orch teardown --fleet-key {key}")


# ---------------------------------------------------------------- dry run


def _dry_run(job: TransferJob, client: Client, terminal: Terminal) -> int:
    from skyplane_orchestration.storage.preflight import preview_row

    selections = client.preview(job)
    rows = [preview_row(job, row) for row in selections]
    summary = _summary(rows)
    if terminal.is_json:
        terminal.write_json({"objects": rows, "summary": summary})
    else:
        from skyplane_orchestration.cli.render import preview_parts

        terminal.answer({}, *preview_parts(rows, summary))
    return SUCCESS


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by action, and bytes in all and to copy."""
    actions = [row["action"] for row in rows]
    return {
        "objects": len(rows),
        "bytes": sum(row["bytes"] for row in rows),
        "copy": actions.count("copy"),
        "copy_bytes": sum(row["bytes"] for row in rows if row["action"] == "copy"),
        "skip": actions.count("skip"),
        "refuse": actions.count("refuse"),
    }
