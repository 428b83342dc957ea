"""The destination of one transfer, at a sink: writes, verifies, and runs the lead's verbs.

Synchronous and thread-safe. Nothing counts as written before it has been verified: by
the store's own checksum where that can be trusted, by reading it again where not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from skyplane_gateway.config import Verification
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    InternalError,
    JournalUnreadable,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    ReadBackMismatch,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.journal.cleanup import TimeWindow, abort_intended, clear_journals
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.store import JournalFolder
from skyplane_gateway.objects import (
    IF_ABSENT,
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
)
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.readback import find_landed, known_crc32c, read_crc32c

log = logging.getLogger(__name__)

#: Most objects that one `list` answers, and most uploads that one `list_uploads` does.
_MAX_PAGE: Final = 1000

#: Removed objects that are remembered, so that their next writing has the right fence.
_REMEMBERED: Final = 10_000


class Destination:
    """Where a transfer writes.

    Args:
        store: opened with the destination's credentials.
        verify: `stored` trusts the store's checksum where the store can be trusted with
            it and reads back where not; `reread` always reads back; `none` never looks.
    """

    def __init__(self, store: ObjectStore, verify: Verification) -> None:
        self.store = store
        self._verify = verify
        #: Whether the store's own word is enough, where the store can be trusted with it.
        self._believes = verify != "reread"
        #: Uploads that were begun here and are open -> whether a journal names them.
        self._uploads: dict[tuple[str, str], bool] = {}
        #: Where the journals of the transfer are, as its lead said.
        self._journals: dict[tuple[str, str], JournalFolder] = {}
        #: Key -> etag that it had before we replaced it, and removed what we had written.
        self._removed: dict[str, str | None] = {}
        self._is_closed = False
        self._is_abandoned = False
        self._lock = threading.Lock()
        self._verbs: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "list": self._list,
            "create": self._create,
            "complete": self._complete,
            "abort": self._abort,
            "abort_intended": self._abort_intended,
            "head": self._head,
            "list_uploads": self._list_uploads,
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
            ReadBackMismatch: what the store holds is not what was sent. It was removed, so
                that the next attempt must find nothing there: its `precondition` is
                `IF_ABSENT`. The same one as before is understood as well, here.
            StoreError: as the store says.
        """
        fence = self._fence(key, precondition)
        try:
            info = self.store.put(
                key, data, attributes=attributes, precondition=fence, crc32c=crc32c
            )
        except PreconditionFailed:
            # The receipt of an earlier sending may have been lost, at whichever sink.
            landed = find_landed(
                self.store, key, len(data), crc32c, attributes, believes=self._believes
            )
            if landed is None:
                raise
            return landed
        self._ensure_stored(info, len(data), crc32c, precondition)
        return info

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, offset: int, crc32c: int
    ) -> PartInfo:
        """Store one part; the whole is verified when it is completed."""
        return self.store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)

    # -- the lead's verbs

    def run(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb that came over the control API.

        Raises:
            ConfigurationInvalid: no such verb.
            InternalError: its arguments are not what it takes, or whatever else nobody has
                foreseen.
            StoreError: as the store says.
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
        rows = self.store.list(arguments["prefix"], start_after=arguments["start_after"])
        page = list(islice(rows, limit))
        return {"objects": [row.to_dict() for row in page], "more": len(page) == limit}

    def _create(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key = arguments["key"]
        upload_id = self.store.create_upload(key, _attributes_in(arguments))
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self._uploads[key, upload_id] = bool(arguments.get("is_journaled", False))
        if is_late:
            # Nobody will hear of it: the transfer ended while the store was making it.
            self.store.abort_upload(key, upload_id)
            raise UnknownTransfer(f"the transfer ended while the upload of {key!r} began")
        return {"upload_id": upload_id}

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], arguments["upload_id"]
        size, crc32c = int(arguments["size_bytes"]), int(arguments["crc32c"])
        precondition = Precondition.from_dict(arguments["precondition"])
        try:
            info = self.store.complete_upload(
                key,
                upload_id,
                [PartInfo.from_dict(part) for part in arguments["parts"]],
                precondition=self._fence(key, precondition),
                size_bytes=size,
                crc32c=crc32c,
            )
        except (NotFound, PreconditionFailed):
            # The answer of an earlier completion may have been lost, at whichever sink.
            attributes = _attributes_in(arguments)
            landed = find_landed(self.store, key, size, crc32c, attributes, believes=self._believes)
            if landed is None:
                raise
            self.store.abort_upload(key, upload_id)
            info = landed
        with self._lock:
            self._uploads.pop((key, upload_id), None)
        try:
            self._ensure_stored(info, size, crc32c, precondition)
        except ReadBackMismatch as error:
            # The upload is gone with the object: only a new one can help.
            raise ReadBackMismatch(error.message, is_permanent=True) from error
        return {"etag": info.etag, "crc32c": crc32c}

    def _abort(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], str(arguments["upload_id"])
        self.store.abort_upload(key, upload_id)
        with self._lock:
            self._uploads.pop((key, upload_id), None)
        return {}

    def _abort_intended(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Abort what a request for an upload may have made whose answer nobody had.

        The request was made `asked_s_ago` by the lead whose journals those are, which wrote
        the newest, `journal_etag`, `written_s_ago`; or it is an intent of one that is gone,
        noted at `noted_unix_s`, or requests without an answer since then, `until_unix_s`.
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
            # Now, by the store's clock: or earlier, where the journal was written meanwhile.
            is_that = newest.etag == arguments.get("journal_etag")
            age_s = float(arguments["written_s_ago"]) if is_that else 0.0
            when = TimeWindow.since(newest.last_modified + age_s - float(arguments["asked_s_ago"]))
        else:
            return {}  # Whoever removed the journals has seen to what they named.
        own, spared = {row.key for row in rows}, arguments.get("spared")
        try:
            abort_intended(self.store, arguments["key"], when, own=own, spared=spared)
        except (PermissionDenied, JournalUnreadable) as error:
            # No object need wait for it: what notes it stays until the end. Who asks for what
            # he has lost himself is told, but for a right that need not be given.
            if isinstance(error, JournalUnreadable) and not is_noted:
                raise
            log.warning("an upload of %r may stay open: %s", arguments["key"], error)
        return {}

    # -- what a lead asks that goes on with a transfer

    def _head(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The object, None where there is none; with `checksum`, its CRC32C in any case."""
        key = arguments["key"]
        try:
            if not arguments.get("checksum", False):
                return {"object": self.store.head(key).to_dict()}
            info, crc32c = known_crc32c(self.store, key, believes=self._believes)
        except NotFound:
            return {"object": None}
        return {"object": {**info.to_dict(), "crc32c": crc32c}}

    def _list_uploads(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        rows = list(islice(self.store.list_uploads(arguments["prefix"]), _MAX_PAGE))
        return {
            "uploads": [
                {"key": row.key, "upload_id": row.upload_id, "initiated": row.initiated}
                for row in rows
            ],
            "more": len(rows) == _MAX_PAGE,
        }

    def _list_parts(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        parts = self.store.list_parts(arguments["key"], arguments["upload_id"])
        return {"parts": [part.to_dict() for part in parts]}

    # -- the journal

    def _write_journal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        journal = Journal.from_dict(arguments["journal"])
        folder = self._journal_folder(arguments["folder"], journal.transfer_key)
        etag = folder.write(journal, arguments["if_match"])
        with self._lock:
            is_late, is_abandoned = self._is_closed, self._is_abandoned
        if is_late:
            if is_abandoned:
                # It came while the transfer was being cancelled; nobody else removes it, and
                # what it names. Of any other end somebody may go on.
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

    # -- verification

    def _ensure_stored(
        self, info: ObjectInfo, size_bytes: int, crc32c: int, precondition: Precondition
    ) -> None:
        """See that the object `info`, written under that precondition, has these bytes.

        Raises:
            ReadBackMismatch: it has not. It was removed, so that nobody takes it for good.
            PreconditionFailed: somebody has written another one over it meanwhile.
        """
        # A folder's mark has no bytes, and a file store cannot read it.
        if self._verify == "none" or (info.key.endswith("/") and size_bytes == 0):
            return
        trusted = self.store.capabilities.trusts_checksum and info.crc32c is not None
        if self._believes and trusted:
            found: int | None = info.crc32c
        else:
            found = read_crc32c(self.store, info, size_bytes)
        if found != crc32c:
            # What went wrong may be the answer, and others may rely on the object by now.
            found = read_crc32c(self.store, info, size_bytes)
        if found == crc32c:
            with self._lock:
                self._removed.pop(info.key, None)
            return
        self._remove(info, precondition)
        what = (
            f"reads back with other bytes (crc32c {found:#010x}, sent {crc32c:#010x})"
            if found is not None
            else "cannot be read back whole"
        )
        hole = (
            "; what it had replaced is gone, and the source still has the object"
            if precondition.if_match is not None
            else ""
        )
        raise ReadBackMismatch(f"{info.key!r} was written but {what}; it was removed{hole}")

    def _remove(self, bad: ObjectInfo, precondition: Precondition) -> None:
        """Remove an object of ours, and no other that was put in its place meanwhile.

        Not every store deletes on a condition: there, what is written between the look and
        the deletion is lost. Both take a moment, reading back may take minutes.

        Raises:
            PreconditionFailed: another object is there; it may be written over again.
        """
        try:
            with suppress(NotFound):
                if self.store.head(bad.key).etag != bad.etag:
                    raise PreconditionFailed("it is another object now")
                self.store.delete(bad.key, if_match=bad.etag)
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"{bad.key!r} was written over while it was read back; write it again",
                is_permanent=False,
            ) from error
        with self._lock:
            if len(self._removed) < _REMEMBERED:
                self._removed.setdefault(bad.key, precondition.if_match)

    def _fence(self, key: str, precondition: Precondition) -> Precondition:
        """The precondition that means the same after a bad object of ours was removed."""
        with self._lock:
            if precondition.if_match is None or self._removed.get(key) != precondition.if_match:
                return precondition
        return IF_ABSENT

    # -- the end

    def note_journals(self, folder: str, transfer_key: str) -> None:
        """Learn where the transfer's journals are; its lead may have told another sink."""
        self._journal_folder(folder, transfer_key)

    def close(self, *, abandoned_epoch: int | None = None) -> bool:
        """Let go of the store, and abort the open uploads that no journal names.

        Args:
            abandoned_epoch: the transfer was cancelled in that epoch, or has succeeded and
                been heard of, and nobody will go on with it. Abort what its journals name as
                well, and remove them; whatever cannot be, the sweep does. Once a newer epoch
                has a journal, all is its.

        Returns:
            Whether all journals that it knows of were removed, and there are some.
        """
        with self._lock:
            uploads, self._uploads = self._uploads, {}
            journals, self._journals = tuple(self._journals.values()), {}
            self._is_closed, self._is_abandoned = True, abandoned_epoch is not None
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
            log.warning("not all that a transfer left, which is over, is removed: %s", error)
            is_cleared = False
    return is_cleared
