"""Converters from the text of an option to its value; argparse adds the option's name to errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from skyplane_gateway.common.object_filter import doubtful_lines, keys_of_lines
from skyplane_orchestration.cli.console import print_error
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.output_format import suffix_of


def commas(text: str) -> list[str]:
    """`a,b` -> [a, b], without blanks around the names; an empty text would have no effect."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return names


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE` -> (NAME, VALUE)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def header(text: str) -> tuple[str, str]:
    """`NAME: TEXT` -> (NAME, TEXT)."""
    name, colon, value = text.partition(":")
    if not (name.strip() and colon and value.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 'NAME: TEXT'")
    return name.strip(), value.strip()


def keys_of_file(path: str, *, is_raw: bool = False) -> tuple[str, ...]:
    """The keys of a file with one key per line; `-` is stdin. See `keys_of_lines`."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{path!r} is not UTF-8 text") from error
    keys = keys_of_lines(text, is_raw=is_raw)
    if not keys:
        raise argparse.ArgumentTypeError(f"{path!r} has no key")
    if not is_raw and (lines := doubtful_lines(text)):
        which = f"line {lines[0]} is" if len(lines) == 1 else f"line {lines[0]} and others are"
        print_error(
            f"warning: {path!r}: {which} read as a comment or without blanks; --files-from-raw"
            " takes lines as they are"
        )
    return keys


def written_as(*suffixes: str) -> Callable[[str], str]:
    """The converter of an option that names a file to write, in the format of its suffix."""

    def output_file(text: str) -> str:
        try:
            suffix_of(text, suffixes)
        except ConfigurationInvalid as error:
            raise argparse.ArgumentTypeError(error.message) from error
        return text

    return output_file


def vcpu_quota(text: str) -> tuple[str, int]:
    """`CLOUD=N` -> (CLOUD, N)."""
    cloud, count = pair(text)
    return cloud, int(count)
