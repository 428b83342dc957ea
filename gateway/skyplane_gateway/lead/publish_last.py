"""Objects that are copied last, because they announce others.

Any number of objects may be deferred, so rows beyond a mebibyte go to an unnamed temporary
file.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.schema import decode, encode
from skyplane_gateway.selection.selector import Selection

_IN_MEMORY_BYTES: Final = 1 << 20

#: Rows that are read before other tasks run.
_STEP_ROWS: Final = 256


class DeferredObjects:
    """Selected objects, in the order in which they were added.

    The object that each replaces is not kept: the precondition is enough.
    """

    def __init__(self) -> None:
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def add(self, row: Selection) -> None:
        """Add an object; only before `rows` is called."""
        document = encode(replace(row, destination=None))
        self._rows.write(json.dumps(document).encode() + b"\n")

    async def rows(self) -> AsyncGenerator[Selection, None]:
        """All objects; lets other tasks run meanwhile."""
        for number, row in enumerate(self._read()):
            if number % _STEP_ROWS == 0:
                await asyncio.sleep(0)
            yield row

    def _read(self) -> Iterator[Selection]:
        self._rows.seek(0)
        for line in self._rows:
            yield decode(Selection, json.loads(line), "a deferred object")

    def close(self) -> None:
        self._rows.close()
