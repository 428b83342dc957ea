"""The multipart uploads of a transfer that have begun and not ended, and how they are aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from skyplane_gateway.journal.document import LostRow, UploadRow
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.context import OpenUpload, TransferContext


class OpenUploads:
    """Aborts uploads at any sink that answers; the journal records each abort."""

    def __init__(self, context: TransferContext, journal: JournalWriter) -> None:
        self._clock = context.clock
        self._sinks = context.sinks
        self._journal = journal
        self.open = context.open_uploads

    def take_over(self, uploads: Iterable[UploadRow]) -> None:
        """Take over open uploads of an earlier epoch, to end them with all others."""
        self.open |= {
            OpenUpload(row.key, row.upload_id) for row in uploads if row.upload_id is not None
        }

    def record_unanswered(self, key: str) -> None:
        """Record requests without an answer: the store may run them when this lead is gone."""
        called_s = self._sinks.unanswered_creates.get(key)
        if called_s is not None:
            now, for_s = self._clock.wall(), asyncio.get_running_loop().time() - called_s
            self._journal.state.create_lost(LostRow(key, now - for_s, now))

    async def abort(self, upload: OpenUpload) -> None:
        """Abort an upload at any sink that answers; where none does, it stays in `open`."""
        arguments = {"key": upload.key, "upload_id": upload.upload_id}
        if await self._sinks.try_call("abort", arguments):
            self.open.discard(upload)
            self._journal.state.upload_aborted(upload.key, upload.upload_id)

    async def abort_all(self) -> None:
        """Abort open uploads, and those of unanswered requests. No copy may be running."""
        for upload in tuple(self.open):
            await self.abort(upload)
        await self.abort_all_unanswered()

    async def abort_all_unanswered(self) -> None:
        """Abort uploads of unanswered requests; the journal keeps the requests that no sink
        could resolve. No copy may be running."""
        for key in tuple(self._sinks.unanswered_creates):
            if await self.abort_unanswered(key):
                del self._sinks.unanswered_creates[key]
                self._journal.state.create_resolved(key)

    async def abort_unanswered(self, key: str, *, spared: str | None = None) -> bool:
        """Abort uploads that unanswered requests for a key have begun; False where no sink
        could."""
        called_s = self._sinks.unanswered_creates.get(key)
        if called_s is None:
            return True
        arguments = {
            "key": key,
            "asked_s_ago": asyncio.get_running_loop().time() - called_s,
            "spared": spared,
            **self._journal.arguments(),
            **self._journal.last_write(),
        }
        return await self._sinks.try_call("abort_intended", arguments)
