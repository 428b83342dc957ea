"""What a lead learns of both ends: pages of the destination, clocks, and answers about objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends
from skyplane_gateway.selection.questions import ComparisonQuestion, answers_in_order, of_kind
from skyplane_gateway.stores import ahead_s_of, head_all, uses_md5, with_crc32c

#: Objects per page when a sink lists the destination.
_PAGE_OBJECTS: Final = 1000


class BothEnds:
    """Asks the source here, and the destination through a sink."""

    def __init__(self, context: TransferContext) -> None:
        self._context = context
        self._source = context.source
        self._sinks = context.sinks
        #: By how much the destination's clock is ahead of this machine's.
        self._ahead_s = 0.0

    def ends(self) -> Ends:
        """As far as both are listed."""
        spec = self._context.spec
        ahead_s = self._ahead_s - ahead_s_of(self._source.store)
        has_md5 = uses_md5(spec.source) and uses_md5(spec.destination)
        return Ends(spec.source.kind, spec.destination.kind, ahead_s, has_md5)

    async def fetch_page(
        self, prefix: str, start_after: str | None
    ) -> tuple[list[ObjectInfo], bool]:
        """A page of the destination: objects in order, and whether more follow."""
        arguments = {"prefix": prefix, "start_after": start_after, "limit": _PAGE_OBJECTS}
        page = await self._sinks.call("list", arguments)
        self._ahead_s = float(page["now_unix_s"]) - self._context.clock.wall()
        return [ObjectInfo.from_dict(row) for row in page["objects"]], bool(page["more"])

    async def ask(self, asked: Sequence[ComparisonQuestion]) -> list[ComparisonAnswer]:
        """The answers to questions, in order. Raises StoreError, GatewayError."""
        here = [one.source.key for one in of_kind("source", asked)]
        there = [one.destination.key for one in of_kind("destination", asked)]
        return answers_in_order(
            asked,
            *await asyncio.gather(
                self._source.run(head_all, self._source.store, here),
                self._look_there(there),
                asyncio.gather(*map(self._checksums, of_kind("checksums", asked))),
            ),
        )

    async def _look_there(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        if not keys:
            return []
        answer = await self._sinks.call("look_at_all", {"keys": keys})
        return [row and ObjectInfo.from_dict(row) for row in answer["objects"]]

    async def _checksums(self, asked: ComparisonQuestion) -> ComparisonAnswer:
        source, there = asked.source, asked.destination
        size = source.size_bytes
        arguments = {"key": there.key, "checksum": True, "size_bytes": size}
        found, answer = await asyncio.gather(
            self._context.retries.run(
                lambda: self._source.run(
                    with_crc32c, self._source.store, source.key, size_bytes=size
                )
            ),
            self._sinks.call("head", arguments),
        )
        row = answer["object"]
        return ComparisonAnswer(found, row and ObjectInfo.from_dict(row))
