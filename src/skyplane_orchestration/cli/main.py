"""Entry point of `skyplane-orch`: parses arguments, runs a subcommand, returns its exit code."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

import skyplane_orchestration
from skyplane_gateway.common.wording import FieldName, in_words_of
from skyplane_orchestration.cli.console import Console, OutputFailed, configure_logging, print_error
from skyplane_orchestration.cli.exit_codes import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    BadInput,
    as_bad_input,
)
from skyplane_orchestration.cli.option_parser import Parser
from skyplane_orchestration.cli.other_tools import advice_for_verb
from skyplane_orchestration.cli.progress import INTERRUPTED_CODE, TransferInterrupted
from skyplane_orchestration.errors import ConfigurationInvalid, InternalError, SkyplaneError
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.model.result import TransferResult

log = logging.getLogger(__name__)

#: More objects than a small job makes.
_OBJECTS_PER_COLLECTION: Final = 200_000

#: Failed objects printed below the error of a transfer.
_SHOWN_FAILURES: Final = 10

_COMMANDS: Final = (
    "plan",
    "compare",
    "frontier",
    "forecast",
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
    "bundle",
    "ls",
    "mount",
    "handles",
    "manifest",
)

#: Modules of commands that have none of their own name.
_MODULES: Final = {"sync": "cp"}

#: All verbs.
VERBS: Final = (*_COMMANDS, *_MODULES)

_EPILOGUE: Final = (
    "exit status: 0 success, 1 failed transfer, 2 bad input (nothing was changed),"
    " 130 interrupted (after teardown)"
)


def entry_point() -> None:
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    # What a command loads lives to its end. Collections meanwhile find nothing, and take a tenth
    # of the time of a small job.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    keep_stdout()
    code = main(sys.argv[1:])
    # A last collection of all loaded modules would take a tenth of a small job.
    gc.freeze()
    sys.exit(code)


def keep_stdout() -> None:
    """Results go to a copy of descriptor 1; what C code prints, as the solver does, is dropped."""
    if sys.stdout is not None:
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = os.fdopen(os.dup(1), "w", encoding=encoding, errors=errors)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complete() -> None:
    """Answer the shell's completion request and exit; needs argcomplete."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        sys.exit(FAILED)
    argcomplete.autocomplete(build_parser())


class _Version(argparse.Action):
    """Prints the version. It is looked up here, because that takes longer than to parse."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{parser.prog} {skyplane_orchestration.__version__}")  # noqa: T201
        parser.exit()


def build_parser(only: str | None = None) -> Parser:
    """The parser of all commands, or of one, which takes a fifth of the time."""
    parser = Parser(
        prog="skyplane-orch",
        description="Copy and move objects between clouds over a planned overlay of regions.",
        epilog=_EPILOGUE,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _COMMANDS if only is None else (_MODULES.get(only, only),):
        import_module(f"skyplane_orchestration.cli.commands.{name}").add(commands)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code (0, 1, 2 or 130)."""
    with SignalHandler() as signals:
        try:
            try:
                return _run(arguments)
            except KeyboardInterrupt as interrupt:
                return _report_interrupt(interrupt, signals.count, is_json="--json" in arguments)
        except BrokenPipeError:
            # The reader of stdout (head, less) has ended.
            _drop_stdout()
            return FAILED
        except OutputFailed as error:
            print_error(str(error))
            _drop_stdout()
            return FAILED


def _report_interrupt(interrupt: KeyboardInterrupt, count: int, *, is_json: bool) -> int:
    message = "interrupted" if count < 3 else "interrupted again; the cleanup is incomplete"
    print_error(message)
    if is_json:
        error = {"code": INTERRUPTED_CODE, "message": message, "is_permanent": False}
        document: dict[str, object] = {"error": error}
        result = interrupt.result if isinstance(interrupt, TransferInterrupted) else None
        if result is not None:
            document["result"] = result.to_dict()
        Console(is_json=True, is_quiet=False).write_json(document)
    return INTERRUPTED


def _drop_stdout() -> None:
    """Replace stdout, since Python prints another error if it cannot flush it at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    console = Console(is_json="--json" in arguments, is_quiet=False)
    options: argparse.Namespace | None = None
    try:
        with as_bad_input():
            first = arguments[0] if arguments else ""
            is_known = first in VERBS
            if first and not is_known:
                _refuse_other_verb(arguments)
            parser = build_parser(first if is_known else None)
            options = parser.parse_args(arguments)
            from skyplane_orchestration.cli.arguments import settle_deployment

            settle_deployment(options)
        configure_logging(options.verbose)
        log.info("start of the command took %.2f s of CPU time", time.process_time())
        with timed("the command after its start"):
            code: int = options.run_command(options, Console.of(options))
    except BadInput as refused:
        return _report(refused.error, console, BAD_INPUT, options)
    except SkyplaneError as error:
        return _report(error, console, FAILED, options)
    except (OutputFailed, BrokenPipeError):
        raise
    except Exception as error:  # A traceback is no answer to a program that reads JSON.
        log.info("an unexpected error", exc_info=error)
        text = (
            f"unexpected {type(error).__name__}: {error}; run the command again with -v and report"
            " its traceback"
        )
        return _report(InternalError(text), console, FAILED, options)
    return code


def _refuse_other_verb(arguments: Sequence[str]) -> None:
    """Raise ConfigurationInvalid for a verb of another tool, with that of this command."""
    advice = advice_for_verb(arguments, VERBS)
    if advice or not arguments[0].startswith("-"):
        near = get_close_matches(arguments[0].lower(), VERBS, 1)
        advice = advice or (f"did you mean {near[0]}?" if near else f"it has {', '.join(VERBS)}")
        raise ConfigurationInvalid(
            f"{arguments[0]!r} is no verb of skyplane-orch; {advice} (see skyplane-orch --help)"
        )


def _report(
    error: SkyplaneError, console: Console, code: int, options: argparse.Namespace | None
) -> int:
    """Print an error; `options` are those of the command, None if they could not be read."""
    message = with_option_names(error.message, options)
    print_error(message)
    result = getattr(error, "result", None)
    if result is not None and result.failures and not console.is_json:
        _show_failures(result)
    handle = getattr(result, "resume_handle", "")
    if handle and options is not None and not console.is_json:
        _print_resume_command(handle, options)
    if console.is_json:
        document: dict[str, object] = {"error": _document_of(error, message)}
        if result is not None:
            document["result"] = result.to_dict()
        console.write_json(document)
    return code


def _document_of(error: SkyplaneError, message: str) -> dict[str, object]:
    """The error for scripts, in the words of the command."""
    document = {**error.to_dict(), "message": message}
    document.pop("parts", None)
    return document


def _show_failures(result: TransferResult) -> None:
    """Print the first failed objects on stderr."""
    from skyplane_orchestration.cli.render import failure_table

    if sys.stderr is not None:
        output = Console(is_json=False, is_quiet=False).rich(stderr=True)
        output.print(failure_table(result, _SHOWN_FAILURES))
        more = result.failed - _SHOWN_FAILURES
        if more > 0:
            output.print(f"... and {more} more (--manifest PATH lists all)")


def _print_resume_command(handle: str, options: argparse.Namespace) -> None:
    """Save the handle to a file and print the command that resumes the transfer."""
    from skyplane_orchestration.cli.client_factory import command_line
    from skyplane_orchestration.cli.handle_files import handle_directory, save_handle

    try:
        name = save_handle(handle, time.time())
        print_error(f"to resume it within 24 h: {command_line(options, 'resume', name)}")
    except OSError as error:
        print_error(
            f"the resume handle is not saved: {handle_directory()} cannot be written"
            f" ({error.strerror}); make it writable, or use --json, which prints the handle"
        )


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHandler:
    """Turns signals into KeyboardInterrupt in the main thread, while it is entered.

    The first signal raises, and the teardown begins. The second prints that the teardown
    still runs. The third raises again and ends the teardown.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 2:
            sys.stderr.write(
                "skyplane-orch: still cleaning up; interrupt once more to stop this: the"
                " gateways then run until their lease ends\n"
            )
            return
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # nohup and shells without job control ignore signals on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


#: Prefix of an end's arguments -> that of its options.
_ENDS: Final = {"source": "src", "destination": "dst"}

#: Argument of an end -> what follows `--src-` or `--dst-`; empty for the place itself.
_OF_END: Final = {
    "url": "",
    "region": "region",
    "endpoint": "endpoint",
    "credential_ref": "credentials",
    "options": "option",
}


def with_option_names(message: str, options: argparse.Namespace | None) -> str:
    """The message; `options` are those of the command, None if they could not be read."""
    parser = getattr(options, "parser", None)
    return in_words_of(message, lambda field: _option_of(parser, field) or str(field))


def _option_of(parser: argparse.ArgumentParser | None, field: FieldName) -> str:
    """The option for a field; empty for one that the subcommand does not have."""
    name = _of_end(field.name) or field.name
    actions = [one for one in parser._actions if one.dest == name] if parser else []
    exact = [one for one in actions if field.value and repr(one.const) == field.value]
    # The option that takes any value stands before those for one of them.
    for action in exact or actions[:1]:
        return action.option_strings[0] if action.option_strings else str(action.metavar)
    return ""


def _of_end(name: str) -> str:
    """Where the parser keeps an argument of an end; empty for any other argument."""
    end, _, field = name.partition("_")
    if end not in _ENDS or field not in _OF_END:
        return ""
    return f"{_ENDS[end]}_{_OF_END[field]}".rstrip("_")
