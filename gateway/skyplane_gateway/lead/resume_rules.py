"""Decides what a lead does with one object, given the journal of an earlier epoch.

Pure functions of the conflict rule's decision on today's listings, the journal, and what the
store confirms. Where journal and store disagree, the conflict rule decides as if there were no
journal. So a wrong guess costs one more copy, or reports a good object; it never loses one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor
from typing import Final, Literal

from skyplane_gateway.common.errors import AlreadyExists, PreconditionFailed
from skyplane_gateway.common.objects import ObjectInfo, PartInfo, Precondition
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import DoneRow, Journal, UploadRow
from skyplane_gateway.selection.difference import MARGIN_S
from skyplane_gateway.selection.selection_rule import KEEPING_RULES
from skyplane_gateway.selection.selector import Selection

_REFUSED: Final = AlreadyExists.code

#: Codes of keys that failed because another writer's object was there.
_FOREIGN: Final = frozenset({_REFUSED, PreconditionFailed.code})

#: Rules that replace an object with other bytes.
_BY_CONTENT: Final = ("replace-if-different", "replace-if-checksum-differs")

#: `finished`: nothing is left to do. `compare`: finished if the destination has the source's
#: bytes, else see `otherwise`. `continue`: continue the upload. `as-selected`: do what the row
#: says, from the start. `unproved`: report it; do not replace it, and do not trust it.
Verdict = Literal["finished", "compare", "continue", "as-selected", "unproved"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one object.

    Attributes:
        row: the rule's decision, with the precondition of the write that may follow.
        done: the object as this transfer wrote it, where the journal has it.
        upload: to continue; with any other verdict, to abort. Without an id: every open upload
            of that key from the time of the intent.
        crc32c: for `compare`: of the source version, where the journal has it.
        otherwise: for `compare`: what to do when the bytes differ.
    """

    verdict: Verdict
    row: Selection
    done: DoneRow | None = None
    upload: UploadRow | None = None
    crc32c: int | None = None
    otherwise: Decision | None = None


@dataclass(frozen=True, slots=True)
class DoubtRule:
    """When to compare an object that the conflict rule keeps: it may be our own, unverified
    write.

    Attributes:
        of_failed: where it failed, perhaps because it could not be verified.
        of_begun: where it had begun: an object may exist before it is verified.
        replaces_different: the rule replaces an object that has other bytes.
    """

    of_failed: bool = True
    of_begun: bool = True
    replaces_different: bool = False

    @classmethod
    def of(cls, *, conflict: str, verify: str, trusts_checksum: bool) -> DoubtRule:
        """The rule of a transfer; `trusts_checksum`: of the destination's store."""
        reads_back = verify == "reread" or (verify == "stored" and not trusts_checksum)
        return cls(verify != "none", reads_back, conflict in _BY_CONTENT)


def keeps_unseen(spec: TransferSpec) -> bool:
    """Whether existing objects are kept without a look, unless the journal names them."""
    return spec.conflict in KEEPING_RULES and spec.verify != "none"


class EarlierJournal:
    """The journal of an earlier epoch, indexed by key.

    Args:
        journal: of the newest epoch of the same rule; None where there is none.
    """

    def __init__(self, journal: Journal | None, doubt: DoubtRule = DoubtRule()) -> None:
        self._doubt = doubt
        self._through = journal.through if journal is not None else None
        self._began_unix_s = journal.began_unix_s if journal is not None else None
        self._done = {row.key: row for row in journal.done} if journal is not None else {}
        self._begun = frozenset(journal.begun) if journal is not None else frozenset()
        self._failed = {row.key: row.code for row in journal.failed} if journal is not None else {}
        self._uploads = {row.key: row for row in journal.uploads} if journal is not None else {}

    def upload_id_of(self, key: str) -> str | None:
        """Id of the upload that may be continued, where it is known."""
        upload = self._uploads.get(key)
        return None if upload is None else upload.upload_id

    def decide(self, row: Selection, *, is_last: bool = False) -> Decision:
        """What to do with one object; `is_last` if it is published after all others."""
        key = row.destination_key
        upload = self._uploads.get(key)
        done = self._done.get(key)
        there = row.destination
        if done is not None and there is not None and there.etag == done.etag:
            if done.source_etag == row.source.etag:
                return Decision("finished", row, done=done, upload=upload)
            # The rule protects other writers' objects; this is our copy of an older source.
            again = replace(
                row,
                action="copy",
                reason="the source changed since it was copied",
                precondition=Precondition(if_match=done.etag),
            )
            return Decision("as-selected", again, upload=upload)
        if upload is not None:
            return self._decide_upload(row, upload)
        if self._has_ended(key, is_last) and _has_right_size(row):
            return self._decide_ended(row)
        # It had begun, or it failed for another reason than an existing object.
        is_in_doubt = key in self._begun or self._failed.get(key, _REFUSED) != _REFUSED
        if is_in_doubt and row.action == "refuse" and _has_right_size(row):
            # It may be our own write, which the journal missed.
            return Decision("compare", row, otherwise=Decision("as-selected", row))
        if row.action == "skip" and self._may_be_unverified(row):
            return Decision("compare", row, otherwise=self._if_different(row))
        if row.action == "copy" and key in self._begun and self._is_recent(row):
            row = replace(row, may_be_own_copy=True)
        return Decision("as-selected", row)

    def _may_be_unverified(self, row: Selection) -> bool:
        """Whether the object that the rule keeps may be our own, unverified write."""
        key, there = row.destination_key, row.destination
        is_named = (self._doubt.of_begun and key in self._begun) or (
            self._doubt.of_failed and self._failed.get(key, _REFUSED) not in _FOREIGN
        )
        if not is_named or there is None or self._began_unix_s is None:
            return False
        is_since_begin = there.written_unix_s >= self._began_unix_s - MARGIN_S
        return is_since_begin and _has_right_size(row) and not _is_older(there, row.source)

    def _if_different(self, row: Selection, upload: UploadRow | None = None) -> Decision:
        """The decision for our own possible write when its bytes differ from the source's."""
        if not self._doubt.replaces_different or row.destination is None:
            return Decision("unproved", row, upload=upload)
        fence = Precondition(if_match=row.destination.etag)
        again = replace(row, action="copy", reason="the bytes differ", precondition=fence)
        return Decision("as-selected", again, upload=upload)

    def _decide_upload(self, row: Selection, upload: UploadRow) -> Decision:
        is_same = (upload.source_key, upload.source_etag, upload.size_bytes) == (
            row.source.key,
            row.source.etag,
            row.source.size_bytes,
        )
        afresh = Decision("as-selected", row, upload=upload)
        crc32c = upload.crc32c if is_same else None
        if row.action == "skip":
            # The commit had begun, or the upload was to replace the object.
            in_doubt = crc32c is not None or self._doubt.replaces_different
            if not (in_doubt and _has_right_size(row)) or _is_older(row.destination, row.source):
                return afresh
            otherwise = self._if_different(row, upload) if self._doubt.of_failed else afresh
            return Decision("compare", row, upload=upload, crc32c=crc32c, otherwise=otherwise)
        if not is_same:
            return afresh
        goes_on = row.action == "copy" and upload.upload_id is not None
        otherwise = Decision("continue", row, upload=upload) if goes_on else afresh
        # The commit had begun, or the rule refuses an object that may be ours.
        in_doubt = crc32c is not None or row.action == "refuse"
        if in_doubt and _has_right_size(row):
            return Decision("compare", row, upload=upload, crc32c=crc32c, otherwise=otherwise)
        return otherwise

    def _decide_ended(self, row: Selection) -> Decision:
        """A key that has ended: it was copied, or the rule kept the existing object."""
        as_selected = Decision("as-selected", row)
        if row.action == "skip" and not self._is_since_begin(row.destination):
            return as_selected
        if _is_later_copy(row.source, row.destination):
            return Decision("finished", row)
        if row.action == "refuse":
            return Decision("compare", row, otherwise=as_selected)
        if row.action == "skip":
            reason = f"{row.reason}; an earlier epoch may have copied it"
            return Decision("as-selected", replace(row, reason=reason))
        return Decision("as-selected", replace(row, may_be_own_copy=self._is_recent(row)))

    def _is_recent(self, row: Selection) -> bool:
        """Whether the object there has the source's size and was written by the first epoch or
        later."""
        return _has_right_size(row) and self._is_since_begin(row.destination)

    def _is_since_begin(self, there: ObjectInfo | None) -> bool:
        """Whether it was written since the first epoch began; stores round to seconds."""
        began = self._began_unix_s
        return there is not None and began is not None and there.written_unix_s >= floor(began)

    def _has_ended(self, key: str, is_last: bool) -> bool:
        """Whether `through` says that the key has ended."""
        if is_last or self._through is None or key > self._through:
            return False
        return key not in self._begun and key not in self._failed


def keep_parts(upload: UploadRow, parts: Iterable[PartInfo]) -> dict[int, PartInfo]:
    """Number -> part, for the parts of an upload that have the right length and a checksum.

    Parts that the store has copied need none: the checksum of the whole is that of the source.
    """
    return {
        part.number: part
        for part in parts
        if (part.crc32c is not None or upload.is_server_side)
        and part.size_bytes > 0
        and part.size_bytes == upload.length_of(part.number)
    }


def _has_right_size(row: Selection) -> bool:
    return row.destination is not None and row.destination.size_bytes == row.source.size_bytes


def _is_older(there: ObjectInfo | None, source: ObjectInfo) -> bool:
    """Whether the source was written later than the object at the destination."""
    return there is not None and there.written_unix_s < source.last_modified


def _is_later_copy(source: ObjectInfo, there: ObjectInfo | None) -> bool:
    """Whether our object there is a copy of this source version: by checksums where both
    listings have them, else by times that leave no doubt."""
    if there is None:
        return False
    if source.crc32c is not None and there.crc32c is not None:
        return source.crc32c == there.crc32c
    return source.last_modified + MARGIN_S <= there.written_unix_s
