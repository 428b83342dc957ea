"""A position in rows that ascend by their keys, for joins of sorted rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Keyed(Protocol):
    """A row of sorted rows."""

    @property
    def key(self) -> str: ...


Row = TypeVar("Row", bound=Keyed)


class KeyCursor(Generic[Row]):
    """Moves forward only. `passed`: the last key that it has left behind, or never had."""

    def __init__(self, rows: Iterator[Row], passed: str = "") -> None:
        self._rows = rows
        self._row = next(rows, None)
        self.passed = passed

    def at(self, key: str) -> Row | None:
        """The row of that key, or None. Keys of later calls must not be smaller."""
        row = self._row
        while row is not None and row.key < key:
            self.passed = row.key
            row = self._row = next(self._rows, None)
        return row if row is not None and row.key == key else None
