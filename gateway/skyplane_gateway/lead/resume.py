"""Resumes objects of an earlier epoch: compares, continues or aborts what it left.

The verbs run at a sink. Slow requests (parts, checksums) are made only for objects that the
journal leaves in doubt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from skyplane_gateway.common.errors import ChecksumMismatch, NotFound, StoreError
from skyplane_gateway.common.kept_properties import with_values
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, ObjectInfo, PartInfo
from skyplane_gateway.journal.document import DoneRow, UploadRow
from skyplane_gateway.journal.earlier_epochs import CallSink, EarlierEpochs
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.lead.resume_rules import Decision, EarlierJournal, keep_parts
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.stores.readback import has_attributes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What is left to do with one object.

    Attributes:
        row: action and precondition for an object that is not finished.
        is_finished: the destination has it already.
        done: the finished object, where its details are known.
        upload: to continue, or of a finished object and could not be aborted; None for an object
            that starts from the beginning.
        parts: number -> part that is stored already.
        gone: an upload of the key that was aborted.
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


@dataclass(frozen=True, slots=True)
class Resumer:
    """Resumes the objects of one transfer, from the journal of an earlier epoch.

    Args:
        journals: arguments that name the transfer's journals, see `JournalWriter.arguments`.
        sets: see `KeptProperties.sets`.
    """

    earlier: EarlierJournal
    call: CallSink
    source: SourceStore
    journals: Mapping[str, Any]
    sets: ObjectAttributes | None = None

    async def resume(self, row: Selection, *, is_last: bool = False) -> Resumed:
        """What is left to do with an object; uploads that are not continued are aborted.

        Raises:
            ChecksumMismatch: the rule keeps the object, and it may be our unverified write.
            StoreError, GatewayError: as the sink says; this may be called again.
        """
        return await self._carry_out(self.earlier.decide(row, is_last=is_last))

    async def abort(self, upload: UploadRow) -> None:
        """Abort an upload; without an id, uploads of its key from the time of the intent."""
        if upload.upload_id is not None:
            await self.call("abort", {"key": upload.key, "upload_id": upload.upload_id})
        elif upload.noted_unix_s is not None:
            arguments = {"key": upload.key, "noted_unix_s": upload.noted_unix_s}
            await self.call("abort_intended", {**arguments, **self.journals})

    async def abort_abandoned(self, left: EarlierEpochs, journal: JournalState) -> None:
        """Abort uploads that this transfer does not continue, and those of unanswered requests."""
        for upload in left.abandoned:
            try:
                await self.abort(upload)
                journal.upload_aborted(upload.key, upload.upload_id)
            except StoreError as error:
                # An older journal names it, until that is removed as well.
                log.warning("an upload of %r stays open: %s", upload.key, error)
        for row in left.lost:
            arguments = {
                "key": row.key,
                "noted_unix_s": row.since_unix_s,
                "until_unix_s": row.until_unix_s,
                "spared": self.earlier.upload_id_of(row.key),
            }
            try:
                await self.call("abort_intended", {**arguments, **self.journals})
                journal.create_resolved(row.key)
            except StoreError as error:
                # There may be many, and the transfer waits: try no further ones.
                log.warning("an upload of %r may stay open: %s", row.key, error)
                return

    async def _carry_out(self, decision: Decision) -> Resumed:
        if decision.verdict == "compare":
            return await self._compare(decision)
        if decision.verdict == "continue" and decision.upload is not None:
            return await self._continue(decision.row, decision.upload)
        if decision.verdict == "finished":
            return await self._finished(decision.row, decision.done, decision.upload)
        if decision.upload is not None:
            await self.abort(decision.upload)
        if decision.verdict == "unproved":
            raise ChecksumMismatch(
                f"it is not known whether {decision.row.destination_key!r} has the bytes of the "
                "source: an earlier try of this transfer may have written it, and the conflict "
                "rule keeps it; compare both, remove it if it is wrong, then try again",
                is_permanent=True,
            )
        return Resumed(decision.row, gone=decision.upload)

    async def _finished(
        self, row: Selection, done: DoneRow | None, upload: UploadRow | None
    ) -> Resumed:
        """The object is there, whatever is left of its upload."""
        if upload is not None:
            try:
                await self.abort(upload)
            except StoreError as error:
                log.warning("%r is there, but its upload stays: %s", row.destination_key, error)
                return Resumed(row, is_finished=True, done=done, upload=upload)
        return Resumed(row, is_finished=True, done=done, gone=upload)

    async def _continue(self, row: Selection, upload: UploadRow) -> Resumed:
        arguments = {"key": upload.key, "upload_id": upload.upload_id}
        try:
            answer = await self.call("list_parts", arguments)
        except NotFound:
            # Completed, aborted or expired: the object starts again.
            log.info("the upload %s of %r is gone", upload.upload_id, upload.key)
            return Resumed(row, gone=upload)
        parts = [PartInfo(**part) for part in answer["parts"]]
        return Resumed(row, upload=upload, parts=keep_parts(upload, parts))

    async def _compare(self, decision: Decision) -> Resumed:
        row, upload = decision.row, decision.upload
        size_bytes = row.source.size_bytes
        arguments = {"key": row.destination_key, "checksum": True, "size_bytes": size_bytes}
        answer = await self.call("head", arguments)
        there = ObjectInfo.from_dict(answer["object"]) if answer["object"] is not None else None
        crc32c: int | None = None
        if there is not None and there.size_bytes == size_bytes:
            crc32c = decision.crc32c
            if crc32c is None:
                crc32c = await self.source.crc32c(row.source)
        if (
            there is not None
            and crc32c is not None
            and there.crc32c == crc32c
            and await self._is_alike(row, there)
        ):
            done = DoneRow(
                key=row.destination_key,
                etag=there.etag,
                source_etag=row.source.etag,
                size_bytes=size_bytes,
                crc32c=crc32c,
            )
            return await self._finished(row, done, upload)
        if there is None and row.action == "skip":
            gone = replace(row, action="copy", reason="it is gone", precondition=IF_ABSENT)
            return await self._carry_out(Decision("as-selected", gone, upload=upload))
        otherwise = decision.otherwise
        return await self._carry_out(otherwise or Decision("as-selected", row, upload=upload))

    async def _is_alike(self, row: Selection, there: ObjectInfo) -> bool:
        """Whether an object with the same bytes also has the source's attributes; else it is
        older, and must be replaced. Where the rule keeps it, only the bytes count."""
        if row.action != "copy" or there.attributes is None:
            return True
        try:
            source = await self.source.head(row.source.key)
        except NotFound:
            return True  # It was there when it was listed; no better copy is possible.
        wanted, sets = source.attributes, self.sets
        if wanted is not None or sets is not None:
            wanted = with_values(wanted or ObjectAttributes(), sets)
        return source.etag != row.source.etag or has_attributes(there, wanted)
