"""Objects that the destination's store copies itself, from a source of the same service.

The library decides whether a transfer may do so (`TransferSpec.server_side_copy`). This decides per
object, and stops at the first refusal: the objects after it pass through the gateways.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from skyplane_gateway.common.errors import WAITED_FOR, NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.objects import ObjectInfo, PartInfo, StoreCapabilities, is_time_pin
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.sink_pool import SinkPool
from skyplane_gateway.stores.copy_source import CopySource

log = logging.getLogger(__name__)

#: Parts that each sink has its store copy at once. A sink has more threads for such verbs.
_PER_SINK: Final = 8
#: Such parts of all sinks: each call to another gateway takes one of the lead's threads, which
#: its other calls need as well.
_AT_ONCE: Final = 32


class ServerSideCopies:
    """Copies parts of objects at the store.

    Attributes:
        refusal: why the store copies no more objects; empty while it does.
        unfinished_bytes: copied parts of objects that are not whole yet.
    """

    def __init__(
        self,
        spec: TransferSpec,
        sinks: SinkPool,
        *,
        source: StoreCapabilities,
        destination: StoreCapabilities,
    ) -> None:
        self._spec = spec
        self._sinks = sinks
        self._destination = destination
        self._is_on = (
            spec.server_side_copy
            and destination.server_side_copy != "none"
            # The checksum of the copy is compared with that of the source.
            and source.trusts_checksum
        )
        self._slots = asyncio.Semaphore(min(_AT_ONCE, _PER_SINK * sinks.count))
        self.refusal = ""
        self.unfinished_bytes = 0

    def may_copy(self, source: ObjectInfo) -> bool:
        """Whether the store may copy the object; `copies` knows more of it.

        Smaller objects cost more requests in parts than as a whole.
        """
        spec, destination = self._spec, self._destination
        least = max(spec.chunk_bytes, destination.min_part_bytes)
        if destination.server_side_copy == "objects":
            # Their parts are objects, which a bucket may refuse to delete.
            least = max(least, spec.whole_bytes)
        return (
            self._is_on
            and not self.refusal
            and source.size_bytes > least
            and not is_time_pin(source.etag)
        )

    def copies(self, source: ObjectInfo) -> bool:
        """Whether the store copies the object; `source` is from `head`, with its checksum."""
        return self.may_copy(source) and source.crc32c is not None

    def part_bytes(self, object_bytes: int, wanted_bytes: int, roomy_bytes: int = 0) -> int:
        """As `StoreCapabilities.part_bytes`, for parts that the store copies."""
        if self._destination.server_side_copy == "objects":
            return object_bytes
        return self._destination.part_bytes(object_bytes, wanted_bytes, roomy_bytes)

    async def copy_part(
        self, key: str, upload_id: str, number: int, source: CopySource
    ) -> PartInfo:
        """Have a sink's store copy one part; errors as `CopiesParts.copy_part`."""
        arguments = {
            "key": key,
            "upload_id": upload_id,
            "number": number,
            "source": source.to_dict(),
            "size_bytes": source.length,
        }
        async with self._slots:
            return PartInfo(**await self._sinks.call("copy_part", arguments))

    def refused(self, error: StoreError) -> bool:
        """Whether the failed copy should be made by the gateways; the next ones are, too."""
        if isinstance(error, (*WAITED_FOR, NotFound, PreconditionFailed)):
            return False
        if not self.refusal:
            log.warning("from now on the gateways copy, and not the store itself: %s", error)
            self.refusal = error.message
        return True
