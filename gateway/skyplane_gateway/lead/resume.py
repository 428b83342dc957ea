"""Asks the store about what the journal names, and settles each object.

The verbs run at a sink. Every answer of the store that takes longer than a moment (parts,
checksums) is asked for objects that the journal is in doubt of, never for the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from skyplane_gateway.errors import ChecksumMismatch, NotFound, StoreError
from skyplane_gateway.journal.document import DoneRow, LostRow, UploadRow
from skyplane_gateway.journal.writer import Keeper, Verb
from skyplane_gateway.lead.resume_rules import Judgement, Past, keep_parts
from skyplane_gateway.objects import IF_ABSENT, ObjectInfo, PartInfo
from skyplane_gateway.selection import Selection
from skyplane_gateway.stores.readback import has_attributes

log = logging.getLogger(__name__)


class Source(Protocol):
    """What tells more of a source object than its listing does."""

    async def head(self, key: str) -> ObjectInfo:
        """As `ObjectStore.head`."""
        ...

    async def crc32c(self, info: ObjectInfo) -> int | None:
        """Of that very version; None where it cannot be told."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """What is left to do with one object.

    Attributes:
        row: what to do, when nothing is finished: its action and precondition.
        is_finished: the destination has it already.
        done: how it is at the destination, when that is known of a finished one.
        upload: goes on; None for an object that starts from the beginning.
        parts: number -> part that is stored already.
        gone: an upload of the key that was aborted; the ledger is to be told.
    """

    row: Selection
    is_finished: bool = False
    done: DoneRow | None = None
    upload: UploadRow | None = None
    parts: Mapping[int, PartInfo] = field(default_factory=dict)
    gone: UploadRow | None = None

    @property
    def is_left(self) -> bool:
        """Whether it is still to be copied."""
        return not self.is_finished and self.row.action == "copy"


class Recovery:
    """Settles the objects of a transfer that has a past.

    Args:
        past: what earlier epochs left.
        call: runs a verb at a sink.
        source: learns checksums and attributes of source objects.
        place: of the transfer's journals, as `JournalKeeper.place` tells.
    """

    def __init__(self, past: Past, call: Verb, source: Source, place: Mapping[str, Any]) -> None:
        self._past = past
        self._call = call
        self._source = source
        self._place = place

    async def settle(self, row: Selection, *, is_last: bool = False) -> Settled:
        """What is left to do; uploads that nobody goes on with have been aborted.

        Raises:
            ChecksumMismatch: the rule keeps what is there, and it may be what an earlier epoch
                wrote and did not verify.
            StoreError, GatewayError: as the sink says; the object may be settled again.
        """
        return await self._carry_out(self._past.judge(row, is_last=is_last))

    async def abort(self, upload: UploadRow) -> None:
        """Abort an upload; one without an id is what was begun for its key at that time.

        Raises:
            StoreError, GatewayError: as the sink says.
        """
        if upload.upload_id is not None:
            await self._call("abort", {"key": upload.key, "upload_id": upload.upload_id})
        elif upload.noted_unix_s is not None:
            arguments = {"key": upload.key, "noted_unix_s": upload.noted_unix_s}
            await self._call("abort_intended", {**arguments, **self._place})

    async def abort_strays(self, strays: Iterable[UploadRow], keeper: Keeper) -> None:
        """Abort what nobody goes on with; the keeper is told of each.

        Raises:
            GatewayError: as the sink says.
        """
        for stray in strays:
            try:
                await self.abort(stray)
                keeper.aborted(stray.key, stray.upload_id)
            except StoreError as error:
                # An older journal goes on naming it, until that is removed as well.
                log.warning("an upload of %r stays open: %s", stray.key, error)

    async def abort_lost(self, rows: Iterable[LostRow], keeper: Keeper) -> None:
        """Abort what requests without an answer have begun; the keeper is told of each. The
        first that cannot be is the last: there may be many, and the transfer waits.

        Raises:
            GatewayError: as the sink says.
        """
        for row in rows:
            arguments = {
                "key": row.key,
                "noted_unix_s": row.since_unix_s,
                "until_unix_s": row.until_unix_s,
                "spared": self._past.upload_id_of(row.key),
            }
            try:
                await self._call("abort_intended", {**arguments, **self._place})
                keeper.settled(row.key)
            except StoreError as error:
                log.warning("an upload of %r may stay open: %s", row.key, error)
                return

    async def _carry_out(self, judgement: Judgement) -> Settled:
        if judgement.verdict == "compare":
            return await self._compare(judgement)
        if judgement.verdict == "continue" and judgement.upload is not None:
            return await self._go_on(judgement.row, judgement.upload)
        if judgement.upload is not None:
            await self.abort(judgement.upload)
        if judgement.verdict == "unproved":
            raise ChecksumMismatch(
                f"the object {judgement.row.destination_key!r} could not be shown to have the "
                "source's bytes, and an earlier try of this transfer may have written it; the "
                "conflict rule keeps it: look at it, remove it if it is not wanted, then try again",
                is_permanent=True,
            )
        return Settled(
            judgement.row,
            is_finished=judgement.verdict == "finished",
            done=judgement.done,
            gone=judgement.upload,
        )

    async def _go_on(self, row: Selection, upload: UploadRow) -> Settled:
        arguments = {"key": upload.key, "upload_id": upload.upload_id}
        try:
            answer = await self._call("list_parts", arguments)
        except NotFound:
            # Completed, aborted or expired: that object alone starts again.
            log.info("the upload %s of %r is gone", upload.upload_id, upload.key)
            return Settled(row, gone=upload)
        parts = [PartInfo.from_dict(part) for part in answer["parts"]]
        return Settled(row, upload=upload, parts=keep_parts(upload, parts))

    async def _compare(self, judgement: Judgement) -> Settled:
        row, upload = judgement.row, judgement.upload
        answer = await self._call(
            "head",
            {
                "key": row.destination_key,
                "checksum": True,
                "size_bytes": row.source.size_bytes,
            },
        )
        there = ObjectInfo.from_dict(answer["object"]) if answer["object"] is not None else None
        wanted = judgement.crc32c
        has_size = there is not None and there.size_bytes == row.source.size_bytes
        if wanted is None and has_size:
            wanted = await self._source.crc32c(row.source)
        is_equal = (
            there is not None
            and has_size
            and wanted is not None
            and there.crc32c == wanted
            and await self._is_alike(row, there)
        )
        if is_equal and there is not None and wanted is not None:
            if upload is not None:
                await self.abort(upload)
            done = DoneRow(
                key=row.destination_key,
                etag=there.etag,
                source_etag=row.source.etag,
                size_bytes=row.source.size_bytes,
                crc32c=wanted,
            )
            return Settled(row, is_finished=True, done=done, gone=upload)
        if there is None and row.action == "skip":
            gone = replace(row, action="copy", reason="it is gone", precondition=IF_ABSENT)
            return await self._carry_out(Judgement("as-selected", gone, upload=upload))
        otherwise = judgement.otherwise
        return await self._carry_out(otherwise or Judgement("as-selected", row, upload=upload))

    async def _is_alike(self, row: Selection, there: ObjectInfo) -> bool:
        """Whether an object of the same bytes has the source's attributes, too: else it is an
        older one, and to be replaced. Where the rule keeps it, the bytes alone count."""
        if row.action != "copy" or there.attributes is None:
            return True
        try:
            source = await self._source.head(row.source.key)
        except NotFound:
            return True  # It was there when it was listed, and nothing better comes.
        return source.etag != row.source.etag or has_attributes(there, source.attributes)
