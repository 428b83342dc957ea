"""Copies one large object as a multipart upload, from its intent to its completion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.checksum import combined
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    NotFound,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, PartInfo
from skyplane_gateway.common.schema import encode
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.journal.document import UploadRow, attributes_digest
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.context import OpenUpload, TransferContext
from skyplane_gateway.lead.fresh_sources import FreshSources
from skyplane_gateway.lead.open_uploads import OpenUploads
from skyplane_gateway.lead.resume import Resumed
from skyplane_gateway.lead.turns import end_turn, reach_turn
from skyplane_gateway.lead.weighted_semaphore import WeightedSemaphore
from skyplane_gateway.selection.metadata_check import require_carried
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.source.chunk_orders import RangeOrder, RangeOutcome
from skyplane_gateway.stores.content_types import lost_attributes
from skyplane_gateway.stores.copy_source import CopySource

log = logging.getLogger(__name__)

#: Parts of all objects that are in flight or wait for a route: more than the sinks of any
#: fleet can hold, so that no window stays empty.
_PARTS_IN_FLIGHT: Final = 1024

#: Parts of all objects that have begun; each is kept in memory until its object is complete.
_PARTS_KNOWN: Final = 1 << 16


class CopyAgain(Exception):
    """The object must be copied again from its beginning: its source changed, or what was
    written of it is gone or damaged.

    Attributes:
        error: the reason to report when copying again does not help either.
    """

    def __init__(self, error: StoreError | None = None) -> None:
        super().__init__()
        self.error = error


class ObjectFailed(Exception):
    """The object could not be copied."""

    def __init__(self, error: SkyplaneError) -> None:
        super().__init__(error.message)
        self.error = error


class SendWhole(Exception):
    """The store cannot copy the object itself, and it is small enough to be sent whole."""


@dataclass(slots=True)
class _Copy:
    """One object while its parts are sent.

    Attributes:
        info: its version at the source.
        is_server_side: the store copies the parts itself.
        parts: stored parts.
        not_carried: attributes that the copy lacks (see `ObjectInfo.not_carried`).
        attempts: the most that a part took.
        server_side_bytes: parts that the store has copied in this epoch.
    """

    row: Selection
    info: ObjectInfo
    part_bytes: int
    parts: list[PartInfo]
    not_carried: set[str]
    is_server_side: bool
    attempts: int = 0
    server_side_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompletedUpload:
    etag: str
    crc32c: int
    attempts: int
    not_carried: set[str]
    is_server_side: bool
    compared: str


class MultipartCopier:
    """Copies large objects; the journal records each of their uploads."""

    def __init__(self, context: TransferContext, journal: JournalWriter) -> None:
        self._context = context
        self._server_side = context.server_side
        self._sinks = context.sinks
        self._spec = context.spec
        self._kept = context.spec.kept
        self._journal = journal
        self._fresh = FreshSources(context)
        self._parts = asyncio.Semaphore(_PARTS_IN_FLIGHT)
        self._known_parts = WeightedSemaphore(_PARTS_KNOWN)
        #: Destination key -> what an earlier epoch left of an object that is continued.
        self._resumed: dict[str, Resumed] = {}
        self.uploads = OpenUploads(context, journal)

    # -- uploads of earlier epochs

    def resume_later(self, resumed: Resumed) -> None:
        """Continue this upload when its object's turn comes."""
        self._resumed[resumed.row.destination_key] = resumed
        if resumed.upload is not None:
            self.uploads.take_over([resumed.upload])

    def takes(self, row: Selection) -> bool:
        """Whether the object is copied in parts: an upload of it is continued, it is too large
        to be sent whole, or the store may copy it itself."""
        return (
            row.destination_key in self._resumed
            or row.source.size_bytes > self._context.whole_bytes
            or self._server_side.may_copy(row.source)
        )

    # -- one object

    async def copy(self, row: Selection) -> CompletedUpload:
        """Copy an object in parts.

        Raises:
            CopyAgain: nothing of this attempt is left.
            SendWhole: nothing was begun.
            ObjectFailed: nothing of it is left, or its upload stays open.
            GatewayLost: the transfer must stop.
        """
        parts = -(-row.source.size_bytes // self._spec.chunk_bytes)
        async with self._known_parts.acquire(min(parts, self._context.capabilities.max_parts)):
            return await self._copy(row)

    async def _copy(self, row: Selection) -> CompletedUpload:
        resumed = self._resumed.pop(row.destination_key, None)
        left = resumed.upload if resumed is not None else None
        upload: OpenUpload | None = None
        copy: _Copy | None = None
        if left is not None and left.upload_id is not None:
            upload = OpenUpload(left.key, left.upload_id)
        try:
            await self._fresh.wait([row])
            began_s = asyncio.get_running_loop().time()
            info = self._kept.of_source(await self._context.source.head(row.source.key))
            # Attributes change without a new ETag; an upload keeps those of its beginning.
            begun_with = left.attributes if left is not None else None
            has_them = begun_with in (None, attributes_digest(info.attributes))
            if info.etag != row.source.etag or not has_them:
                raise CopyAgain
            is_server_side = self._server_side.copies(info)
            if upload is not None and left is not None and left.is_server_side != is_server_side:
                # Such parts have other sizes, and perhaps no checksums.
                await self.uploads.abort(upload)
                resumed = left = upload = None
            copy = self._begun(row, info, is_server_side=is_server_side)
            if resumed is not None and left is not None:
                copy.part_bytes, copy.parts = left.part_bytes, list(resumed.parts.values())
            elif not is_server_side and row.source.size_bytes <= self._context.whole_bytes:
                raise SendWhole
            if upload is None:
                upload = await self._begin(copy)
            await self._send_parts(copy, upload)
            crc32c = _checksum_of(copy)
            if await self._fresh.changed([row], began_s):
                raise CopyAgain
            etag = await self._complete(copy, upload, crc32c)
        except (CopyAgain, StoreError, ObjectFailed) as failure:
            if upload is not None:
                await self.uploads.abort(upload)
            if not isinstance(failure, StoreError):
                raise
            is_server_side = copy is not None and copy.is_server_side
            is_refused = is_server_side and self._server_side.refused(failure)
            # A store may damage a part, perhaps in an earlier epoch.
            if is_refused or isinstance(failure, ChecksumMismatch):
                raise CopyAgain(failure) from failure
            raise ObjectFailed(failure) from failure
        finally:
            if copy is not None:
                self._server_side.unfinished_bytes -= copy.server_side_bytes
        compared = "" if info.crc32c is None else "CRC32C"
        return CompletedUpload(
            etag, crc32c, copy.attempts, copy.not_carried, is_server_side, compared
        )

    def _begun(self, row: Selection, info: ObjectInfo, *, is_server_side: bool) -> _Copy:
        """A copy without any part. Raises StoreError where it would lack too much."""
        sized = self._server_side if is_server_side else self._context.capabilities
        part_bytes = sized.part_bytes(
            row.source.size_bytes, self._spec.chunk_bytes, self._context.whole_bytes
        )
        not_carried = {*row.source.not_carried, *info.not_carried}
        if not self._kept.attributes and info.attributes is not None:
            not_carried.update(lost_attributes(info.attributes, row.destination_key))
        if self._spec.strict_metadata:
            require_carried(row.source.key, not_carried)
        return _Copy(row, info, part_bytes, [], not_carried, is_server_side)

    async def _begin(self, copy: _Copy) -> OpenUpload:
        """Create the upload, once the journal has its intent."""
        key, source = copy.row.destination_key, copy.row.source
        state = self._journal.state
        state.upload_intended(
            UploadRow(
                key,
                None,
                source.key,
                source.etag,
                source.size_bytes,
                copy.part_bytes,
                attributes=attributes_digest(copy.info.attributes),
                is_server_side=copy.is_server_side,
            )
        )
        await self._journal.flush()
        arguments = {
            "key": key,
            "attributes": self._attributes_of(copy),
            "is_journaled": True,
            "server_side": copy.is_server_side,
        }
        try:
            answer = await self._sinks.call("create", arguments)
        finally:
            self.uploads.record_unanswered(key)
        upload = OpenUpload(key, str(answer["upload_id"]))
        self.uploads.open.add(upload)
        # While the journal holds only the intent, others look for these uploads as well.
        await self.uploads.abort_unanswered(key, spared=upload.upload_id)
        state.upload_created(key, upload.upload_id)
        # At once: an upload whose id no journal names can only be searched for.
        self._journal.write_soon()
        return upload

    async def _complete(self, copy: _Copy, upload: OpenUpload, crc32c: int) -> str:
        """Make the parts the object; its etag."""
        self._journal.state.upload_committing(upload.key, crc32c)
        await self._journal.flush()
        answer = await self._call_complete(
            {
                "key": upload.key,
                "upload_id": upload.upload_id,
                "parts": [encode(part) for part in copy.parts],
                "precondition": encode(copy.row.precondition),
                "size_bytes": copy.row.source.size_bytes,
                "crc32c": crc32c,
                "attributes": self._attributes_of(copy),
            }
        )
        if answer.get("leftover"):
            # It stays open: the end of the transfer tries again, and then a sweep.
            self._journal.state.upload_left(upload.key)
        else:
            self.uploads.open.discard(upload)
        if int(answer["crc32c"]) != crc32c:
            raise ChecksumMismatch(
                f"{upload.key!r} does not have the bytes that were read at the source"
            )
        return str(answer["etag"])

    async def _call_complete(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a completion.

        The store may still run an earlier request, which a lost sink made: then the upload is
        gone, and the object is not there yet. Raises CopyAgain if it does not appear.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._sinks.call("complete", arguments)
            except NotFound as error:
                if attempt == self._context.retries.attempts:
                    raise CopyAgain(error) from error
                log.info("%r may be completed already: %s", arguments["key"], error)
                await self._context.retries.pause(attempt)

    # -- parts

    async def _send_parts(self, copy: _Copy, upload: OpenUpload) -> None:
        """Send every part that is not stored yet."""
        stored = {part.number for part in copy.parts}
        offsets = range(0, copy.row.source.size_bytes, copy.part_bytes)
        await reach_turn()
        try:
            async with asyncio.TaskGroup() as group:
                for number, offset in enumerate(offsets, start=1):
                    if number in stored:
                        continue
                    # A task exists only for a part in flight: there may be 10,000 parts.
                    await self._parts.acquire()
                    send = self._copy_part if copy.is_server_side else self._send_part
                    task = group.create_task(send(copy, upload, number, offset))
                    task.add_done_callback(lambda _: self._parts.release())
                end_turn()
        except ExceptionGroup as failures:
            # The first failure cancelled the other parts.
            raise failures.exceptions[0] from None
        copy.parts.sort(key=lambda part: part.number)

    async def _copy_part(self, copy: _Copy, upload: OpenUpload, number: int, offset: int) -> None:
        info, bucket = copy.info, self._spec.source
        length = min(copy.part_bytes, info.size_bytes - offset)
        source = CopySource(bucket, info.key, info.etag, offset, length)
        try:
            part = await self._server_side.copy_part(upload.key, upload.upload_id, number, source)
        except PreconditionFailed as error:
            raise CopyAgain from error
        except NotFound as error:
            # The source, or the upload: a lifecycle rule of the bucket may have aborted it.
            raise CopyAgain(error) from error
        copy.parts.append(part)
        copy.server_side_bytes += length
        self._server_side.unfinished_bytes += length
        copy.attempts = 1

    async def _send_part(self, copy: _Copy, upload: OpenUpload, number: int, offset: int) -> None:
        source = copy.row.source
        order = RangeOrder(
            source.key,
            source.etag,
            offset,
            min(copy.part_bytes, source.size_bytes - offset),
            upload.key,
            storage_class=copy.info.storage_class,
        )
        (outcome,), attempts = await self._context.delivery.deliver(
            "part",
            (order,),
            upload_id=upload.upload_id,
            part_number=number,
            # A part is read without the object's tags: the look at the whole object decides.
            strict_metadata=self._spec.strict_metadata and not self._kept.tags,
        )
        if source_changed(outcome):
            raise CopyAgain
        if isinstance(outcome.error, NotFound) and not outcome.at_source:
            # The upload was aborted, for instance by a lifecycle rule of the bucket.
            raise CopyAgain(outcome.error)
        if outcome.error is not None:
            raise ObjectFailed(outcome.error)
        copy.parts.append(PartInfo(number, outcome.etag, order.length, outcome.crc32c))
        if not self._kept.tags:
            copy.not_carried.update(outcome.not_carried)
        copy.attempts = max(copy.attempts, attempts)

    def _attributes_of(self, copy: _Copy) -> dict[str, Any] | None:
        found = copy.info.attributes
        if found is None and self._kept.sets is None:
            return None
        given = found or self._kept.of_copy(ObjectAttributes())[0]
        # By the time in the listing: an answer to HEAD has whole seconds.
        return marked(given, self._kept.mark_of(copy.row.source)).to_dict()


def source_changed(outcome: RangeOutcome) -> bool:
    """Whether the source no longer has the version that was ordered."""
    return outcome.at_source and isinstance(outcome.error, PreconditionFailed)


def _checksum_of(copy: _Copy) -> int:
    """The checksum of the whole; CopyAgain if it differs from that of the source's store."""
    info = copy.info
    if copy.is_server_side and info.crc32c is not None:
        # Not every store computes those of the parts. The commit compares that of the whole.
        return info.crc32c
    crc32c = combined((part.crc32c or 0, part.size_bytes) for part in copy.parts)
    if info.crc32c not in (None, crc32c):
        raise CopyAgain(
            ChecksumMismatch(
                f"each of two reads of {info.key!r} has CRC32C {crc32c:08x}, but its store states "
                f"{info.crc32c:08x}; check the object before you copy it again"
            )
        )
    return crc32c
