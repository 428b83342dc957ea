"""Rows of a grid's CSV files, validated cell by cell; errors name file and row.

With strict `Findings` a reader raises the first bad row, otherwise it collects all bad rows.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from skyplane_gateway.common.schema import parsed
from skyplane_orchestration.errors import ConfigurationInvalid, GridInvalid, InvalidLocation
from skyplane_orchestration.model.location import parse_region_tag


class BadRow(GridInvalid):
    """An invalid row; `file`, `row` (1 = the header) and `text` give the reason."""

    code = "grid-row-invalid"
    # Defaults for an error that was decoded from another process.
    file: str = ""
    row: int = 0
    text: str = ""

    def __init__(self, message: str, *, file: str = "", row: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.row = row
        self.text = text or message


def bad_row(file: str, row: int, text: str) -> BadRow:
    return BadRow(f"{file} row {row}: {text}", file=file, row=row, text=text)


class Findings:
    """Errors found while reading: raised at once if strict, else collected."""

    def __init__(self, *, is_strict: bool = True) -> None:
        self.is_strict = is_strict
        self.errors: list[GridInvalid] = []

    def report(self, error: GridInvalid) -> None:
        """Add one error. Raises it if strict."""
        if self.is_strict:
            raise error
        self.errors.append(error)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """An error inside becomes a finding; the reader continues with the next row."""
        try:
            yield
        except GridInvalid as error:
            self.report(error)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a CSV file; `number` is its line, where 1 is the header."""

    file: str
    number: int
    cells: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    def get(self, column: str) -> str:
        """The cell, "" if the file has no such column."""
        return self.cells.get(column) or ""

    def bad(self, text: str) -> BadRow:
        return bad_row(self.file, self.number, text)

    def quantity(self, column: str, *, low: float = 0.0) -> float:
        """A finite number from `low` up."""
        text = self.cells[column].strip()
        try:
            # Python reads 1_0 as ten, which is a mistake in a CSV file.
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= low):
            raise self.bad(f"{column} is {self[column]!r}, not a number from {low:g} up")
        return value

    def optional_quantity(self, column: str) -> float | None:
        return self.quantity(column) if self.get(column).strip() else None

    def whole(self, column: str, *, low: int = 0) -> int:
        value = self.quantity(column, low=low)
        if value != int(value):
            raise self.bad(f"{column} is {self[column]!r}, not a whole number")
        return int(value)

    def tag(self, column: str) -> str:
        try:
            return parse_region_tag(self[column]).tag
        except InvalidLocation as error:
            raise self.bad(str(error)) from error

    def day(self, column: str) -> str:
        """A date as YYYY-MM-DD, or "" where there is none."""
        text = self.get(column).strip()
        if text and not is_day(text):
            raise self.bad(f"{column} is {text!r}, not a date like 2026-11-20")
        return text


def is_day(text: str) -> bool:
    """Whether `text` is a date as YYYY-MM-DD."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def parsed_text(text: str, name: str, load: Callable[[str], Any] = json.loads) -> Any:
    """As `skyplane_gateway.common.schema.parsed`; raises GridInvalid, for a YAML error too."""
    try:
        return parsed(text, name, load)
    except ConfigurationInvalid as error:
        raise GridInvalid(error.message) from error
    except yaml.YAMLError as error:
        raise GridInvalid(f"{name} is not YAML: {error}") from error


def read_text(file: Traversable, name: str) -> str:
    """The text of a file. Raises GridInvalid when it is not UTF-8 or cannot be read."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise GridInvalid(f"{name} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise GridInvalid(f"{name} cannot be read: {error.strerror}") from error


def read_rows(
    directory: Traversable, name: str, columns: Sequence[str], findings: Findings
) -> Iterator[Row]:
    """Rows of `directory/name`; none if the file is missing."""
    file = directory / name
    if file.is_file():
        text: str | None = None
        with findings.catching():
            text = read_text(file, name)
        if text is not None:
            yield from rows_of(text, name, columns, findings)


def rows_of(text: str, name: str, columns: Sequence[str], findings: Findings) -> Iterator[Row]:
    """Rows of CSV text whose header has at least `columns`."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(reader.fieldnames or ())
        missing = [column for column in columns if column not in header]
        twice = sorted({column for column in header if header.count(column) > 1})
        if missing or twice:
            what = f"lacks {', '.join(missing)}" if missing else f"has {twice[0]!r} twice"
            findings.report(bad_row(name, 1, f"the header {what}"))
            return
        for cells in reader:
            row = Row(name, reader.line_num, cells)
            if None in cells or None in cells.values():
                findings.report(row.bad("the number of fields differs from the header"))
            else:
                yield row
    except csv.Error as error:
        findings.report(bad_row(name, reader.line_num, f"it is not CSV: {error}"))
