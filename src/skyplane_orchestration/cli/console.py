"""Where a verb's words go: answers to stdout, progress and complaints to stderr."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Width of tables where nobody looks: a pipe must not get rows that are cut to 80 columns.
_PIPE_WIDTH: Final = 200
_CLOSED: Final = "the answer could not be written: its stream is closed"


def printable(text: str) -> str:
    """A text whose every character is seen: others would steer the terminal, or end the line.

    Keys and file names may hold any character; such ones are shown as Python escapes them.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


class Unwritable(Exception):
    """What was asked for is there, and cannot be handed over; the text says why."""


class Terminal:
    """The streams of one run of the command, and how the user wants them."""

    def __init__(self, *, is_json: bool, is_quiet: bool) -> None:
        self.is_json = is_json
        self.is_quiet = is_quiet

    @classmethod
    def of(cls, options: argparse.Namespace) -> Terminal:
        return cls(is_json=options.json, is_quiet=options.quiet)

    def answer(self, document: Mapping[str, Any], *readable: RenderableType) -> None:
        """The verb's answer: one JSON object, or what a person reads."""
        if self.is_json:
            self.write_json(document)
        else:
            with _writing():
                console = self.console()
                for part in readable:
                    console.print(part)

    def write_json(self, document: Mapping[str, Any]) -> None:
        with _writing():
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
            sys.stdout.flush()

    def console(self, *, is_for_progress: bool = False) -> Console:
        from rich.console import Console

        stream = sys.stderr if is_for_progress else sys.stdout
        if stream is None:
            raise Unwritable(_CLOSED)
        width = None if stream.isatty() else _PIPE_WIDTH
        return Console(file=stream, width=width, highlight=False, soft_wrap=width is not None)

    def say(self, text: str) -> None:
        """Progress in words; nothing with --quiet."""
        if not self.is_quiet:
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """Raises Unwritable where stdout is closed or full; a reader that left is BrokenPipeError."""
    if sys.stdout is None:
        raise Unwritable(_CLOSED)
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(f"the answer could not be written: {error.strerror}") from error


def complain(text: str) -> None:
    """One line on stderr, where there is one."""
    if sys.stderr is None:
        return
    line = printable(" ".join(text.split()))
    sys.stderr.write(f"skyplane-orch: {line}\n")
    sys.stderr.flush()


class _LineFormatter(logging.Formatter):
    """Lines of a message stay lines; what else is not seen is escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = "\n".join(printable(line) for line in record.message.split("\n"))
        return super().formatMessage(record)


def configure_logging(verbosity: int) -> None:
    """Warnings of this project always; more of it, then of everything, when asked."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter("skyplane-orch: %(levelname)s: %(message)s"))
    own = logging.WARNING if verbosity == 0 else logging.INFO if verbosity == 1 else logging.DEBUG
    logging.basicConfig(level=logging.ERROR if verbosity < 2 else logging.INFO, handlers=[handler])
    for name in ("skyplane_orchestration", "skyplane_gateway"):
        logging.getLogger(name).setLevel(own)
