"""The destination of one transfer at a sink: writes objects and runs the verbs of the lead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    ConfigurationInvalid,
    InternalError,
    JournalUnreadable,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    ReadBackMismatch,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.job_options import Verification
from skyplane_gateway.common.objects import (
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
)
from skyplane_gateway.common.schema import encode
from skyplane_gateway.journal.cleanup import TimeWindow, abort_intended, clear_journals
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.sink.write_verifier import WriteVerifier
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.copy_source import CopiesParts, CopySource
from skyplane_gateway.stores.heads import head_all
from skyplane_gateway.stores.readback import find_written, object_crc32c
from skyplane_gateway.stores.server_clock import ahead_s_of
from skyplane_gateway.stores.wrappers.retrying import try_put

log = logging.getLogger(__name__)

#: Most objects that one `list` answers.
_MAX_PAGE: Final = 1000


class Destination:
    """Where a transfer writes. Synchronous and thread-safe.

    An object counts as written only once it is verified.

    Args:
        store: opened with the destination's credentials.
        verify: see `WriteVerifier`.
    """

    def __init__(
        self, store: ObjectStore, verify: Verification, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.store = store
        self._clock = clock
        self._verifier = WriteVerifier(store, verify)
        #: Uploads that were begun here and are open -> whether a journal names them.
        self._uploads: dict[tuple[str, str], bool] = {}
        #: The folders of journals that the lead has named.
        self._journals: dict[tuple[str, str], JournalFolder] = {}
        self._manifests: dict[str, ManifestReader] = {}
        self._is_closed = False
        self._is_abandoned = False
        self._lock = threading.Lock()
        self._verbs: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "list": self._list,
            "create": self._create,
            "copy_part": self._copy_part,
            "complete": self._complete,
            "abort": self._abort,
            "abort_intended": self._abort_intended,
            "head": self._head,
            "look_at_all": self._look_at_all,
            "list_parts": self._list_parts,
            "write_journal": self._write_journal,
            "read_journals": self._read_journals,
            "delete_journals": self._delete_journals,
            "require_newest": self._require_newest,
        }

    # -- chunks

    def put(
        self,
        key: str,
        data: Body,
        crc32c: int,
        attributes: ObjectAttributes,
        precondition: Precondition,
    ) -> ObjectInfo:
        """Write one whole object and verify it; idempotent as `ObjectStore.put`.

        Raises:
            ReadBackMismatch: the store holds other bytes, and the object was removed. The next
                attempt may use `IF_ABSENT` or the same precondition.
        """
        fence = self._verifier.fence(key, precondition)
        try:
            info = self.store.put(
                key, data, attributes=attributes, precondition=fence, crc32c=crc32c
            )
        except PreconditionFailed:
            # The receipt of an earlier attempt, at any sink, may be lost.
            landed = self._find_written(key, len(data), crc32c, attributes)
            if landed is None:
                raise
            return landed
        self._verifier.ensure_stored(info, len(data), crc32c, precondition)
        return info

    def find_landed(
        self,
        key: str,
        size_bytes: int,
        crc32c: int,
        attributes: ObjectAttributes,
        precondition: Precondition,
    ) -> ObjectInfo | None:
        """The object if an earlier sending of it, by any sink, wrote it."""
        landed = self._find_written(key, size_bytes, crc32c, attributes)
        if landed is None or landed.etag == precondition.if_match:
            return None  # An equal object that is to be replaced is no sending.
        return landed

    async def try_put(
        self,
        key: str,
        data: Body,
        crc32c: int,
        attributes: ObjectAttributes,
        precondition: Precondition,
    ) -> ObjectInfo | None:
        """`put` without a thread; None where `put` has to do it, perhaps again."""
        info = await try_put(
            self.store,
            key,
            data,
            attributes=attributes,
            precondition=self._verifier.fence(key, precondition),
            crc32c=crc32c,
        )
        if info is None or not await self._verifier.is_stored(info, len(data), crc32c):
            return None
        return info

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, offset: int, crc32c: int
    ) -> PartInfo:
        """Store one part; the object is verified when the upload is completed."""
        return self.store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)

    def _find_written(
        self, key: str, size_bytes: int, crc32c: int, attributes: ObjectAttributes | None
    ) -> ObjectInfo | None:
        trusts = self._verifier.trusts_store
        return find_written(self.store, key, size_bytes, crc32c, attributes, trust_store=trusts)

    # -- the lead's verbs

    def run(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb of the control API.

        Raises:
            ConfigurationInvalid: no such verb.
            InternalError: wrong arguments, or an unexpected error.
        """
        call = self._verbs.get(verb)
        if call is None:
            raise ConfigurationInvalid(f"a sink has no verb {verb!r}")
        try:
            return call(arguments)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"the verb {verb!r} for {arguments.get('key', arguments.get('prefix', ''))!r}"
            log.exception("%s failed", what)
            raise InternalError.of(error, what, "a sink gateway") from error

    def _list(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        limit = min(int(arguments["limit"]), _MAX_PAGE)
        prefix, after = arguments["prefix"], arguments["start_after"]
        manifest = self._manifest_of(arguments.get("manifest"))
        rows = self.store.list(prefix, start_after=after)
        if manifest is not None:
            is_trusted = arguments.get("trust_manifest", False)
            join = manifest.listing if is_trusted else manifest.beside
            rows = join(rows, prefix, after)
        page = list(islice(rows, limit))
        return {
            "objects": [row.to_dict() for row in page],
            "more": len(page) == limit,
            "now_unix_s": self._clock.wall() + ahead_s_of(self.store),
            "manifest_trouble": "" if manifest is None else manifest.trouble,
            "trusted_unix_s": 0.0 if manifest is None else manifest.trusted_unix_s,
        }

    def _manifest_of(self, folder: str | None) -> ManifestReader | None:
        """That of a folder; every page has the rows of one version of it."""
        if folder is None:
            return None
        with self._lock:
            return self._manifests.setdefault(folder, ManifestReader(self.store, folder))

    def _look_at_all(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        rows = head_all(self.store, arguments["keys"])
        return {"objects": [row and row.to_dict() for row in rows]}

    def _create(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key = arguments["key"]
        attributes = _attributes_in(arguments)
        if arguments.get("server_side", False):
            upload_id = self._copier.create_copy_upload(key, attributes)
        else:
            upload_id = self.store.create_upload(key, attributes)
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self._uploads[key, upload_id] = bool(arguments.get("is_journaled", False))
        if is_late:
            # The lead has ended, and does not read the response.
            self.store.abort_upload(key, upload_id)
            raise UnknownTransfer(f"the transfer ended while the upload of {key!r} began")
        return {"upload_id": upload_id}

    def _copy_part(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        source = CopySource.from_dict(arguments["source"])
        key, upload_id = arguments["key"], str(arguments["upload_id"])
        return encode(self._copier.copy_part(key, upload_id, int(arguments["number"]), source))

    @property
    def _copier(self) -> CopiesParts:
        if not isinstance(self.store, CopiesParts):
            raise ConfigurationInvalid(f"{self.store.spec.place} copies nothing by itself")
        return self.store

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], arguments["upload_id"]
        size, crc32c = int(arguments["size_bytes"]), int(arguments["crc32c"])
        precondition = Precondition(**arguments["precondition"])
        try:
            info = self.store.complete_upload(
                key,
                upload_id,
                [PartInfo(**part) for part in arguments["parts"]],
                precondition=self._verifier.fence(key, precondition),
                size_bytes=size,
                crc32c=crc32c,
            )
        except (NotFound, PreconditionFailed, ChecksumMismatch, StoreUnavailable):
            # The response to this completion, or to an earlier one at any sink, may be lost.
            landed = self._find_written(key, size, crc32c, _attributes_in(arguments))
            if landed is None:
                raise
            info = replace(landed, leftover=self._left_after_abort(key, upload_id))
        with self._lock:
            self._uploads.pop((key, upload_id), None)
        try:
            self._verifier.ensure_stored(info, size, crc32c, precondition)
        except ReadBackMismatch as error:
            # The upload no longer exists: only a new one can succeed.
            raise ReadBackMismatch(error.message, is_permanent=True) from error
        left = {"leftover": info.leftover} if info.leftover else {}
        return {"etag": info.etag, "crc32c": crc32c, **left}

    def _left_after_abort(self, key: str, upload_id: str) -> str:
        try:
            self.store.abort_upload(key, upload_id)
        except StoreError as error:
            log.warning("%r is written, but its upload %s stays: %s", key, upload_id, error)
            return error.message
        return ""

    def _abort(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], str(arguments["upload_id"])
        self.store.abort_upload(key, upload_id)
        with self._lock:
            self._uploads.pop((key, upload_id), None)
        return {}

    def _abort_intended(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Abort an upload that a request without a response may have begun.

        The present lead sent the request `asked_s_ago`, and wrote its newest journal,
        `journal_etag`, `written_s_ago`. For a request of an earlier lead the journal gives the
        times `noted_unix_s` to `until_unix_s`.
        """
        folder = self._journal_folder(arguments["folder"], arguments["transfer_key"])
        rows = folder.rows(int(arguments["epoch"]))
        is_noted = arguments.get("noted_unix_s") is not None
        if is_noted:
            noted_unix_s = float(arguments["noted_unix_s"])
            when = TimeWindow.around(
                noted_unix_s, float(arguments.get("until_unix_s", noted_unix_s))
            )
        elif rows:
            newest = rows[-1]
            # Compared by the clock of the store, which dates the journal.
            is_that = newest.etag == arguments.get("journal_etag")
            age_s = float(arguments["written_s_ago"]) if is_that else 0.0
            when = TimeWindow.since(newest.last_modified + age_s - float(arguments["asked_s_ago"]))
        else:
            return {}  # Removing the journals has aborted the uploads that they named.
        own, spared = {row.key for row in rows}, arguments.get("spared")
        try:
            abort_intended(self.store, arguments["key"], when, own=own, spared=spared)
        except (PermissionDenied, JournalUnreadable) as error:
            # The journal keeps an earlier lead's note until the end, so objects need not wait. That
            # of the present lead has to stay, too.
            if not is_noted:
                raise
            log.warning("an upload of %r may stay open: %s", arguments["key"], error)
        return {}

    # -- verbs of a lead that resumes

    def _head(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The object, or None; with `checksum` always its CRC32C."""
        key = arguments["key"]
        try:
            if not arguments.get("checksum", False):
                return {"object": self.store.head(key).to_dict()}
            info, crc32c = object_crc32c(self.store, key, trust_store=self._verifier.trusts_store)
        except NotFound:
            return {"object": None}
        return {"object": {**info.to_dict(), "crc32c": crc32c}}

    def _list_parts(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        parts = self.store.list_parts(arguments["key"], arguments["upload_id"])
        return {"parts": [encode(part) for part in parts]}

    # -- the journal

    def _write_journal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        journal = Journal.from_dict(arguments["journal"])
        folder = self._journal_folder(arguments["folder"], journal.transfer_key)
        etag = folder.write(journal, arguments["if_match"])
        with self._lock:
            is_late, is_abandoned = self._is_closed, self._is_abandoned
        if is_late:
            if is_abandoned:
                # The transfer was cancelled during the write, so nobody else removes this
                # journal. After any other end a resume may use it.
                clear_journals(folder, journal.epoch)
            raise UnknownTransfer("the transfer ended while its journal was written")
        return {"etag": etag}

    def _read_journals(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        folder = self._journal_folder(arguments["folder"], arguments["transfer_key"])
        found = folder.read(seal_before=arguments.get("seal_before"), rule=arguments.get("rule"))
        return {
            "journals": [stored.journal.to_dict() for stored in found.readable],
            "unreadable": {str(epoch): why for epoch, why in found.unreadable.items()},
        }

    def _delete_journals(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        folder = self._journal_folder(arguments["folder"], arguments["transfer_key"])
        clear_journals(folder, int(arguments["epoch"]))
        return {}

    def _require_newest(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        folder = self._journal_folder(arguments["folder"], arguments["transfer_key"])
        folder.require_newest(int(arguments["epoch"]))
        return {}

    def _journal_folder(self, folder: str, transfer_key: str) -> JournalFolder:
        with self._lock:
            if self._is_closed:
                raise UnknownTransfer("the transfer has ended here")
            place = (folder, transfer_key)
            found = self._journals.get(place)
            if found is None:
                found = self._journals[place] = JournalFolder(self.store, folder, transfer_key)
            return found

    # -- the end

    def note_journals(self, folder: str, transfer_key: str) -> None:
        """Learn the folder of the journals; the lead may have written them by another sink."""
        self._journal_folder(folder, transfer_key)

    def close(self, *, abandoned_epoch: int | None = None) -> bool:
        """Abort the open uploads that no journal names, and close the store.

        No resume follows an `abandoned_epoch` (cancelled, or its success is acknowledged): also
        remove its journals and abort the uploads that they name, unless a newer epoch has a
        journal. Returns whether it knew of journals, and removed all.
        """
        with self._lock:
            uploads, self._uploads = self._uploads, {}
            journals, self._journals = tuple(self._journals.values()), {}
            self._is_closed, self._is_abandoned = True, abandoned_epoch is not None
        self._verifier.remove_rest()
        self._abort_all(row for row, is_named in uploads.items() if not is_named)
        is_cleared = abandoned_epoch is not None and _clear(journals, abandoned_epoch)
        if is_cleared:
            # The journal does not name an upload that began after its lead had ended.
            self._abort_all(row for row, is_named in uploads.items() if is_named)
        self.store.close()
        return is_cleared

    def _abort_all(self, uploads: Iterable[tuple[str, str]]) -> None:
        for key, upload_id in uploads:
            try:
                self.store.abort_upload(key, upload_id)
            except SkyplaneError as error:
                log.warning("the upload %s of %r stays open: %s", upload_id, key, error)


def _attributes_in(arguments: Mapping[str, Any]) -> ObjectAttributes | None:
    attributes = arguments.get("attributes")
    return ObjectAttributes.from_dict(attributes) if attributes is not None else None


def _clear(journals: Collection[JournalFolder], epoch: int) -> bool:
    is_cleared = bool(journals)
    for folder in journals:
        try:
            clear_journals(folder, epoch)
        except SkyplaneError as error:
            log.warning(
                "journals or uploads of a transfer that is over were not removed: %s", error
            )
            is_cleared = False
    return is_cleared
