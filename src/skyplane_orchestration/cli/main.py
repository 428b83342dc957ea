"""Entry point of `skyplane-orch`: parse, run one verb, turn errors into exit codes."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli.arguments import Parser
from skyplane_orchestration.cli.console import (
    Terminal,
    Unwritable,
    complain,
    configure_logging,
)
from skyplane_orchestration.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED, Refused, refusing
from skyplane_orchestration.cli.interrupted import INTERRUPTED_CODE, Interrupted
from skyplane_orchestration.cli.option_names import with_option_names
from skyplane_orchestration.cli.signals import Interrupts
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.model.result import TransferResult

log = logging.getLogger(__name__)

#: Failed objects that are shown below the error of a transfer.
_SHOWN_FAILURES: Final = 10

_VERBS: Final = (
    "plan",
    "compare",
    "frontier",
    "cp",
    "provision",
    "transfer",
    "resume",
    "verify",
    "status",
    "teardown",
    "sweep",
    "grid",
    "doctor",
)

_EPILOGUE: Final = (
    "exit status: 0 success, 1 a failed transfer, 2 bad input (nothing was changed),"
    " 130 interrupted (after teardown)"
)


def entry_point() -> None:
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    sys.exit(main(sys.argv[1:]))


def _complete() -> None:
    """Tell the shell what may come next, where argcomplete is installed; does not return then."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        sys.exit(FAILED)
    argcomplete.autocomplete(build_parser())


def build_parser() -> Parser:
    parser = Parser(
        prog="skyplane-orch",
        description="Move objects between clouds over a planned overlay of regions.",
        epilog=_EPILOGUE,
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('skyplane-orchestration')}"
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name in _VERBS:
        import_module(f"skyplane_orchestration.cli.commands.{name}").add(verbs)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit code (0, 1, 2 or 130)."""
    with Interrupts() as interrupts:
        try:
            try:
                return _run(arguments)
            except KeyboardInterrupt as interrupt:
                return _say_interrupted(interrupt, interrupts.count, is_json="--json" in arguments)
        except BrokenPipeError:
            # The reader of our stdout (head, less) has seen enough.
            _drop_stdout()
            return FAILED
        except Unwritable as error:
            complain(str(error))
            _drop_stdout()
            return FAILED


def _say_interrupted(interrupt: KeyboardInterrupt, count: int, *, is_json: bool) -> int:
    """One line, and with --json one object, with what was done by then."""
    message = "interrupted" if count < 3 else "interrupted again; cleanup left"
    complain(message)
    if is_json:
        error = {"code": INTERRUPTED_CODE, "message": message, "is_permanent": False}
        document: dict[str, object] = {"error": error}
        result = interrupt.result if isinstance(interrupt, Interrupted) else None
        if result is not None:
            document["result"] = result.to_dict()
        Terminal(is_json=True, is_quiet=False).write_json(document)
    return INTERRUPTED


def _drop_stdout() -> None:
    """Python would complain once more when it flushes the stream at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    terminal = Terminal(is_json="--json" in arguments, is_quiet=False)
    try:
        with refusing():
            options = build_parser().parse_args(arguments)
        configure_logging(options.verbose)
        log.info("start of the command took %.2f s of processor time", time.process_time())
        with timed("the command after its start"):
            code: int = options.run_verb(options, Terminal.of(options))
    except Refused as refused:
        return _report(refused.error, terminal, BAD_INPUT)
    except SkyplaneError as error:
        return _report(error, terminal, FAILED)
    return code


def _report(error: SkyplaneError, terminal: Terminal, code: int) -> int:
    message = with_option_names(str(error))
    complain(message)
    result = getattr(error, "result", None)
    if result is not None and result.failures and not terminal.is_json:
        _show_failures(result)
    handle = getattr(result, "resume_handle", "")
    if handle and not terminal.is_json:
        _say_how_to_resume(handle)
    if terminal.is_json:
        document: dict[str, object] = {"error": {**error.to_dict(), "message": message}}
        if result is not None:
            document["result"] = result.to_dict()
        terminal.write_json(document)
    return code


def _show_failures(result: TransferResult) -> None:
    """The first failed objects below the error, where it goes."""
    from skyplane_orchestration.cli.render import failure_table

    if sys.stderr is not None:
        console = Terminal(is_json=False, is_quiet=False).console(is_for_progress=True)
        console.print(failure_table(result, _SHOWN_FAILURES))
        more = result.failed - _SHOWN_FAILURES
        if more > 0:
            console.print(f"... and {more} more (a --manifest lists all)")


def _say_how_to_resume(handle: str) -> None:
    """One short line; the handle itself goes to a file, or stays in what --json prints."""
    from skyplane_orchestration.cli.handle_files import handle_folder, keep_handle

    try:
        complain(
            f"to resume it within 24 h: skyplane-orch resume {keep_handle(handle, time.time())}"
        )
    except OSError as error:
        complain(
            f"no resume handle is kept: {handle_folder()} cannot be written ({error.strerror}); "
            "make it writable, or use --json, whose result holds the handle"
        )
