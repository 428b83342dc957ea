"""Multipart uploads at the destination, from their beginning to their end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import ChecksumMismatch, NotFound, StoreError
from skyplane_gateway.journal.document import LostRow, UploadRow, attributes_digest
from skyplane_gateway.journal.writer import Keeper, NoJournal
from skyplane_gateway.lead.retry import MAX_ATTEMPTS, pause_s
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.objects import ObjectInfo, PartInfo
from skyplane_gateway.selection import Selection

log = logging.getLogger(__name__)


class SourceChanged(Exception):
    """What was read is not the version that was to be copied, or not all of it; or what was
    written of it is gone."""

    def __init__(self, error: StoreError | None = None) -> None:
        super().__init__()
        #: What to say when starting over does not help either.
        self.error = error


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """A multipart upload that this transfer began and has not ended.

    `sink` is the gateway that began it; any other can end it as well.
    """

    key: str
    upload_id: str
    sink: str


class Uploads:
    """Begins, completes and aborts the uploads of one transfer; the journal hears of each.

    Args:
        sinks: run verbs on the destination.
        rng: of the pauses.
        clock: its wall time is compared with what the store says.

    Attributes:
        open: those that were begun and have not ended.
        keeper: of the journal.
    """

    def __init__(self, sinks: Sinks, rng: random.Random, clock: Clock = SYSTEM_CLOCK) -> None:
        self._sinks = sinks
        self._rng = rng
        self._clock = clock
        self.open: set[OpenUpload] = set()
        self.keeper: Keeper = NoJournal()

    def inherit(self, uploads: Iterable[UploadRow]) -> None:
        """Take over uploads that an earlier epoch left open, to be ended with all others."""
        known = {(upload.key, upload.upload_id) for upload in self.open}
        for row in uploads:
            if row.upload_id is not None and (row.key, row.upload_id) not in known:
                self.open.add(OpenUpload(row.key, row.upload_id, ""))

    async def begin(self, row: Selection, info: ObjectInfo, part_bytes: int) -> OpenUpload:
        key, source = row.destination_key, row.source
        intent = UploadRow(key, None, source.key, source.etag, source.size_bytes, part_bytes)
        self.keeper.intent(replace(intent, attributes=attributes_digest(info.attributes)))
        await self.keeper.flush()
        try:
            answer, node = await self._sinks.call(
                "create",
                {
                    "key": key,
                    "attributes": _attributes_of(info),
                    "is_journaled": not isinstance(self.keeper, NoJournal),
                },
            )
        finally:
            self._tell_lost(key)
        upload = OpenUpload(key, str(answer["upload_id"]), node)
        self.open.add(upload)
        # As long as the journal says no more than the intent, others look for them too.
        await self._abort_doubtful(key, spared=upload.upload_id)
        self.keeper.created(key, upload.upload_id)
        return upload

    def _tell_lost(self, key: str) -> None:
        """Have the journal tell of requests without an answer: the store may carry them out
        when nobody looks any more who knows of them."""
        asked_s = self._sinks.doubtful_keys.get(key)
        if asked_s is not None:
            now, for_s = self._clock.wall(), asyncio.get_running_loop().time() - asked_s
            self.keeper.lost(LostRow(key, now - for_s, now))

    async def complete(
        self,
        row: Selection,
        upload: OpenUpload,
        info: ObjectInfo,
        parts: Sequence[PartInfo],
        crc32c: int,
    ) -> str:
        """Make the parts the object, which `info` tells of as it is at the source; its etag."""
        self.keeper.committing(upload.key, crc32c)
        await self.keeper.flush()
        arguments = {
            "key": upload.key,
            "upload_id": upload.upload_id,
            "parts": [part.to_dict() for part in parts],
            "precondition": row.precondition.to_dict(),
            "size_bytes": row.source.size_bytes,
            "crc32c": crc32c,
            "attributes": _attributes_of(info),
        }
        answer = await self._ask_to_complete(upload, arguments)
        self.open.discard(upload)
        if int(answer["crc32c"]) != crc32c:
            raise ChecksumMismatch(
                f"{upload.key!r} does not have the bytes that were read at the source"
            )
        return str(answer["etag"])

    async def _ask_to_complete(
        self, upload: OpenUpload, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The answer to a completion.

        The store may still be at work on an earlier one, which a sink asked for that is
        gone: then the upload is no more, and the object is not there yet.

        Raises:
            SourceChanged: neither comes to be there.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                answer, _ = await self._sinks.call("complete", arguments, prefer=upload.sink)
            except NotFound as error:
                if attempt == MAX_ATTEMPTS:
                    raise SourceChanged(error) from error
                log.info("%r may be completed already: %s", upload.key, error)
                await asyncio.sleep(pause_s(attempt, self._rng))
            else:
                return answer

    async def abort(self, upload: OpenUpload) -> None:
        """Abort an upload at any sink that answers; one that stays open stays listed."""
        arguments = {"key": upload.key, "upload_id": upload.upload_id}
        if await self._sinks.call_once("abort", arguments, prefer=upload.sink):
            self.open.discard(upload)
            self.keeper.aborted(upload.key, upload.upload_id)

    async def abort_all(self) -> None:
        """Abort what is still open, and what may have begun without our knowing.

        To be called once nothing is under way any more.
        """
        for upload in tuple(self.open):
            await self.abort(upload)
        await self.settle_doubts()

    async def settle_doubts(self) -> None:
        """Abort what may have begun without our knowing; the journal goes on naming what no
        sink could.

        To be called once nothing is under way any more.
        """
        for key in tuple(self._sinks.doubtful_keys):
            if await self._abort_doubtful(key):
                del self._sinks.doubtful_keys[key]
                self.keeper.settled(key)

    async def _abort_doubtful(self, key: str, *, spared: str | None = None) -> bool:
        """Abort what requests without an answer may have begun for a key; whether a sink did."""
        asked_s = self._sinks.doubtful_keys.get(key)
        if asked_s is None:
            return True
        arguments = {
            "key": key,
            "asked_s_ago": asyncio.get_running_loop().time() - asked_s,
            "spared": spared,
            **self.keeper.place(),
            **self.keeper.last_writing(),
        }
        return await self._sinks.call_once("abort_intended", arguments)


def _attributes_of(info: ObjectInfo) -> dict[str, Any] | None:
    return info.attributes.to_dict() if info.attributes is not None else None
