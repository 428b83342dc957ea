"""Output of the command: answers go to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import rich.console

#: Width of tables in a pipe: 80 columns would cut their rows.
_PIPE_WIDTH: Final = 200
_STDOUT_CLOSED: Final = "cannot write the output: the stream is closed"


def printable(text: str) -> str:
    """Escape the characters that would control the terminal or end the line.

    Object keys and file names may hold any character.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


class OutputFailed(Exception):
    """The command has its answer and cannot write it; the text says why."""


class Console:
    """The output streams of one run: text or one JSON object, with progress or without."""

    def __init__(self, *, is_json: bool, is_quiet: bool) -> None:
        self.is_json = is_json
        self.is_quiet = is_quiet

    @classmethod
    def of(cls, options: argparse.Namespace) -> Console:
        return cls(is_json=options.json, is_quiet=options.quiet)

    def print(self, *parts: rich.console.RenderableType) -> None:
        """Print tables and lines on stdout. A plain text is one line, and needs no rich."""
        with _writing():
            for part in parts:
                if isinstance(part, str):
                    sys.stdout.write(f"{printable(part)}\n")
                else:
                    self.rich().print(part)
            sys.stdout.flush()

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines on stdout as they come; they may be many, and are printable."""
        with _writing():
            for line in lines:
                sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def write_json(self, document: Mapping[str, Any]) -> None:
        with _writing():
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
            sys.stdout.flush()

    def write_rows(
        self, name: str, rows: Iterable[Mapping[str, Any]], rest: Mapping[str, Any]
    ) -> None:
        """As `write_json` of the list `rows` under a name, and `rest`; rows may be many."""
        with _writing():
            sys.stdout.write(f"{{\n  {json.dumps(name)}: [")
            separator = "\n    "
            for row in rows:
                text = json.dumps(row, indent=2).replace("\n", "\n    ")
                sys.stdout.write(f"{separator}{text}")
                separator = ",\n    "
            end = "]" if separator.startswith("\n") else "\n  ]"
            sys.stdout.write(f"{end},{json.dumps(rest, indent=2)[1:]}\n")
            sys.stdout.flush()

    def rich(self, *, stderr: bool = False) -> rich.console.Console:
        from rich.console import Console as RichConsole

        stream = sys.stderr if stderr else sys.stdout
        if stream is None:
            raise OutputFailed(_STDOUT_CLOSED)
        width = None if stream.isatty() else _PIPE_WIDTH
        return RichConsole(file=stream, width=width, highlight=False, soft_wrap=width is not None)

    def info(self, text: str) -> None:
        """Print a line of progress on stderr; nothing with --quiet."""
        if not self.is_quiet:
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """Raise OutputFailed where stdout is closed or full; BrokenPipeError passes."""
    if sys.stdout is None:
        raise OutputFailed(_STDOUT_CLOSED)
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"cannot write the output: {error.strerror}") from error


def print_error(text: str) -> None:
    """Print one line on stderr, if stderr is open."""
    if sys.stderr is None:
        return
    line = printable(" ".join(text.split()))
    sys.stderr.write(f"skyplane-orch: {line}\n")
    sys.stderr.flush()


class _LineFormatter(logging.Formatter):
    """Keeps line breaks of a message and escapes other control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = "\n".join(printable(line) for line in record.message.split("\n"))
        return super().formatMessage(record)


def configure_logging(verbosity: int) -> None:
    """Log warnings of this project; with -v its info, with -vv all its messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter("skyplane-orch: %(levelname)s: %(message)s"))
    own = logging.WARNING if verbosity == 0 else logging.INFO if verbosity == 1 else logging.DEBUG
    logging.basicConfig(level=logging.ERROR if verbosity < 2 else logging.INFO, handlers=[handler])
    for name in ("skyplane_orchestration", "skyplane_gateway"):
        logging.getLogger(name).setLevel(own)
