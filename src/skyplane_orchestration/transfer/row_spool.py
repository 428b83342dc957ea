"""Rows of a report that wait for the end of a transfer's deletes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from skyplane_orchestration.errors import StoreError

_IN_MEMORY_BYTES: Final = 1 << 20


class RowSpool:
    """Rows in an unnamed file beyond a mebibyte."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Raises StoreError when the disk is full."""
        for row in rows:
            try:
                self._file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
            except OSError as error:
                raise StoreError(
                    f"there is no room for the report in {tempfile.gettempdir()}: "
                    f"{error.strerror}; nothing was deleted, free some space"
                ) from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows; one reader at a time, and no writer meanwhile."""
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)

    def close(self) -> None:
        self._file.close()
