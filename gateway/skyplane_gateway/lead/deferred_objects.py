"""Objects that wait until everything else is at the destination.

There may be as many as there are objects, so what is beyond a mebibyte waits in an unnamed
temporary file, of which nothing is left behind.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from skyplane_gateway.objects import ObjectInfo, Precondition
from skyplane_gateway.selection import Selection

_IN_MEMORY_BYTES: Final = 1 << 20

#: Rows that are taken before others have their turn.
_STEP_ROWS: Final = 256


class Waiting:
    """Rows that are to be copied, in the order in which they came.

    The object that each would replace is not kept: the row's precondition says what
    matters of it.
    """

    def __init__(self) -> None:
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def add(self, row: Selection) -> None:
        """Let a row wait; only before any is taken."""
        document = {
            "source": row.source.to_dict(),
            "destination_key": row.destination_key,
            "reason": row.reason,
            "precondition": row.precondition.to_dict(),
        }
        self._rows.write(json.dumps(document).encode() + b"\n")

    async def rows(self) -> AsyncGenerator[Selection, None]:
        """All of them, while others may go on."""
        for number, row in enumerate(self._read()):
            if number % _STEP_ROWS == 0:
                await asyncio.sleep(0)
            yield row

    def _read(self) -> Iterator[Selection]:
        self._rows.seek(0)
        for line in self._rows:
            document = json.loads(line)
            yield Selection(
                source=ObjectInfo.from_dict(document["source"]),
                destination_key=document["destination_key"],
                destination=None,
                action="copy",
                reason=document["reason"],
                precondition=Precondition.from_dict(document["precondition"]),
            )

    def close(self) -> None:
        self._rows.close()
