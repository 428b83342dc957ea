"""What a lead learns of both ends: pages of the destination, clocks, and answers about objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.journal.document import folder_of_destination
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.manifest.handed import reader_of
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends
from skyplane_gateway.selection.questions import (
    ComparisonQuestion,
    answers_in_order,
    of_checksums,
    of_kind,
)
from skyplane_gateway.stores import ahead_s_of, head_all, uses_md5, with_crc32c

#: Objects per page when a sink lists the destination.
_PAGE_OBJECTS: Final = 1000


class BothEnds:
    """Asks the source here, and the destination through a sink."""

    def __init__(self, context: TransferContext) -> None:
        self._context = context
        self._source = context.source
        self._sinks = context.sinks
        spec = context.spec
        folder = folder_of_destination(spec.destination_prefix, recursive=spec.recursive)
        is_there = spec.reads_manifest and not spec.keeps_manifest_elsewhere
        self._manifest_folder = folder if is_there else None
        handed = spec.handed_manifest
        self._handed = None if handed is None else reader_of(handed, folder)
        #: By how much the destination's clock is ahead of this machine's.
        self._ahead_s = 0.0

    def ends(self) -> Ends:
        """As far as both are listed."""
        spec = self._context.spec
        ahead_s = self._ahead_s - ahead_s_of(self._source.store)
        has_md5 = uses_md5(spec.source) and uses_md5(spec.destination)
        is_trusted = self._context.report.counters.trusted_unix_s > 0
        kinds = spec.source.kind, spec.destination.kind
        return Ends(*kinds, ahead_s, has_md5, spec.source.name, is_trusted)

    async def fetch_page(
        self, prefix: str, start_after: str | None
    ) -> tuple[list[ObjectInfo], bool]:
        """A page of the destination: objects in order, and whether more follow."""
        arguments = {
            "prefix": prefix,
            "start_after": start_after,
            "limit": _PAGE_OBJECTS,
            "manifest": self._manifest_folder,
            "trust_manifest": self._context.spec.trust_manifest,
        }
        page = await self._sinks.call("list", arguments)
        counters = self._context.report.counters
        counters.manifest_trouble = counters.manifest_trouble or page["manifest_trouble"]
        counters.trusted_unix_s = float(page["trusted_unix_s"])
        self._ahead_s = float(page["now_unix_s"]) - self._context.clock.wall()
        rows = [ObjectInfo.from_dict(row) for row in page["objects"]]
        if self._handed is not None:
            rows = list(self._handed.beside(iter(rows), prefix, start_after))
            counters.manifest_trouble = self._handed.trouble
        return rows, bool(page["more"])

    async def ask(self, asked: Sequence[ComparisonQuestion]) -> list[ComparisonAnswer]:
        """The answers to questions, in order. Raises StoreError, GatewayError."""
        here = [one.source.key for one in of_kind("source", asked)]
        there = [one.destination.key for one in of_kind("destination", asked)]
        return answers_in_order(
            asked,
            *await asyncio.gather(
                self._source.run(head_all, self._source.store, here),
                self._look_there(there),
                asyncio.gather(*map(self._checksums, of_checksums(asked))),
            ),
        )

    async def _look_there(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        if not keys:
            return []
        answer = await self._sinks.call("look_at_all", {"keys": keys})
        return [row and ObjectInfo.from_dict(row) for row in answer["objects"]]

    async def _checksums(self, asked: ComparisonQuestion) -> ComparisonAnswer:
        ends = [] if asked.kind == "destination-checksum" else [self._source_checksum(asked)]
        ends += [] if asked.kind == "source-checksum" else [self._copy_checksum(asked)]
        found = await asyncio.gather(*ends)
        if asked.kind == "destination-checksum":
            return ComparisonAnswer(destination=found[0])
        return ComparisonAnswer(*found)

    async def _source_checksum(self, asked: ComparisonQuestion) -> ObjectInfo | None:
        key, size = asked.source.key, asked.source.size_bytes
        store = self._source.store
        return await self._context.retries.run(
            lambda: self._source.run(with_crc32c, store, key, size_bytes=size)
        )

    async def _copy_checksum(self, asked: ComparisonQuestion) -> ObjectInfo | None:
        key, size = asked.destination.key, asked.destination.size_bytes
        arguments = {"key": key, "checksum": True, "size_bytes": size}
        row = (await self._sinks.call("head", arguments))["object"]
        return row and ObjectInfo.from_dict(row)
