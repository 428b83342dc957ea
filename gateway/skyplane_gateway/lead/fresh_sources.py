"""Sources that are written while they are copied, so that a later sync finds what it must.

A copy is newer than a source that was overwritten between its read and the copy's commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from skyplane_gateway.common.objects import is_time_pin
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.selection.difference import MARGIN_S
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.stores import ahead_s_of, head_all

#: Age of a read from which the source is asked again. The rest of the margin is for the commit.
_OLD_READ_S: Final = MARGIN_S / 4
#: The second of a write has ended after this, also by a `Date` that is late.
_LONGEST_WAIT_S: Final = 3.0


class FreshSources:
    """Asks the source of one transfer."""

    def __init__(self, context: TransferContext) -> None:
        self._context = context

    async def wait(self, rows: Sequence[Selection]) -> None:
        """Wait for the end of the second in which an object was written.

        Only where a time in whole seconds is all that identifies the version of a copy.
        """
        spec, store = self._context.spec, self._context.source.store
        by_time = spec.destination.kind == "file" != spec.source.kind
        times = [
            row.source.last_modified
            for row in rows
            if (by_time or is_time_pin(row.source.etag)) and row.source.last_modified % 1 == 0
        ]
        now_s = self._context.clock.wall() + ahead_s_of(store)
        left = [time_s + 1 - now_s for time_s in times]
        await asyncio.sleep(max((s for s in left if 0 < s < _LONGEST_WAIT_S), default=0.0))

    async def changed(self, rows: Sequence[Selection], read_since_s: float) -> list[Selection]:
        """The objects whose source has another version now, if they may have been read long ago.

        Args:
            read_since_s: time of the event loop before the first byte was read.

        Raises StoreError.
        """
        if asyncio.get_running_loop().time() - read_since_s < _OLD_READ_S:
            return []
        source = self._context.source
        keys = [row.source.key for row in rows]
        seen = await self._context.retries.run(lambda: source.run(head_all, source.store, keys))
        return [
            row
            for row, info in zip(rows, seen, strict=True)
            # One that was deleted since has been copied as it was.
            if info is not None and info.etag != row.source.etag
        ]
