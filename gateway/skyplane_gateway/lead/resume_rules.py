"""What a lead does with one object, given what an earlier epoch left behind.

Pure: the rule's decision on today's listings, the journal, and what the store confirms go
in, a judgement comes out. The journal names, the store confirms, and where they do not
agree the rule decides as if there were no journal; so a wrong guess costs a copy, or has
an object reported that is well, and never costs an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor
from typing import Final, Literal

from skyplane_gateway.config import TransferSpec
from skyplane_gateway.errors import AlreadyExists, PreconditionFailed
from skyplane_gateway.journal.document import DoneRow, Journal, UploadRow
from skyplane_gateway.objects import ObjectInfo, PartInfo, Precondition
from skyplane_gateway.selection import KEEPING_RULES, Selection

#: A source that was written no longer than this before its copy may have been written again
#: between its reading and the commit: as long as a chunk may be on its way before it goes
#: again, and room for clocks that differ.
IN_DOUBT_S: Final = 120.0

_REFUSED: Final = AlreadyExists.code

#: Codes of keys at which we had found somebody else's object.
_STRANGERS: Final = frozenset({_REFUSED, PreconditionFailed.code})

#: `finished`: nothing is left to do. `compare`: finished if the destination has the
#: source's bytes, else as `otherwise` says. `continue`: the upload goes on. `as-selected`:
#: as the row says, from the start. `unproved`: it is neither replaced nor taken for well.
Verdict = Literal["finished", "compare", "continue", "as-selected", "unproved"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do with one object.

    Attributes:
        row: the decision of the rule, with the precondition of the write that may follow.
        done: how we wrote it, where the journal says.
        upload: to continue; with any other verdict, to abort (with no id: whatever uploads
            of that key are open, since nobody knows what became of the request).
        crc32c: of `compare`: of the source version, where the journal says; None when
            it must be learnt from the source.
        otherwise: of `compare`: what to do when the bytes differ.
    """

    verdict: Verdict
    row: Selection
    done: DoneRow | None = None
    upload: UploadRow | None = None
    crc32c: int | None = None
    otherwise: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """When what a rule would keep is compared first, since it may be our own write that
    nobody came to verify.

    Attributes:
        of_failed: it failed; that may have been because it could not be verified.
        of_begun: it had begun; an object may be there before it is verified.
        replaces_different: the rule replaces whatever has other bytes.
    """

    of_failed: bool = True
    of_begun: bool = True
    replaces_different: bool = False

    @classmethod
    def of(cls, *, conflict: str, verify: str, trusts_checksum: bool) -> Doubt:
        """Of a transfer to a store that can be trusted with checksums, or cannot."""
        reads_back = verify == "reread" or (verify == "stored" and not trusts_checksum)
        return cls(verify != "none", reads_back, conflict == "replace-if-different")


def keeps_unseen(spec: TransferSpec) -> bool:
    """Whether what is there is taken for well, unless the journal says otherwise."""
    return spec.conflict in KEEPING_RULES and spec.verify != "none"


class Past:
    """What earlier epochs left, for looking up.

    Args:
        journal: of the newest epoch of the same rule; None for a transfer without a past.
        doubt: about what the rule would keep.
    """

    def __init__(self, journal: Journal | None, doubt: Doubt = Doubt()) -> None:
        self._doubt = doubt
        self._through = journal.through if journal is not None else None
        self._began_unix_s = journal.began_unix_s if journal is not None else None
        rows = journal if journal is not None else None
        self._done = {row.key: row for row in rows.done} if rows is not None else {}
        self._begun = frozenset(rows.begun) if rows is not None else frozenset()
        self._failed = {row.key: row.code for row in rows.failed} if rows is not None else {}
        self._uploads = {row.key: row for row in rows.uploads} if rows is not None else {}

    def upload_id_of(self, key: str) -> str | None:
        """Of the upload that may go on; None where there is none, or no id of it."""
        upload = self._uploads.get(key)
        return None if upload is None else upload.upload_id

    def judge(self, row: Selection, *, is_last: bool = False) -> Judgement:
        """What to do with the object of that row.

        Args:
            row: the rule's decision on the listings of today.
            is_last: the object is one of those that are published after all others.
        """
        key = row.destination_key
        upload = self._uploads.get(key)
        done = self._done.get(key)
        if done is not None and _is_there(done, row):
            if done.source_etag == row.source.etag:
                return Judgement("finished", row, done=done, upload=upload)
            # The rule looks for what others put there; this is ours, of an older source.
            again = replace(
                row,
                action="copy",
                reason="the source changed since it was copied",
                precondition=Precondition(if_match=done.etag),
            )
            return Judgement("as-selected", again, upload=upload)
        if upload is not None:
            return self._judge_upload(row, upload)
        if self._has_ended(key, is_last) and _has_right_size(row):
            return self._judge_ended(row)
        if self._is_in_doubt(key) and row.action == "refuse" and _has_right_size(row):
            # Our own write, of which no journal came to know, must not be held against us.
            return Judgement("compare", row, otherwise=Judgement("as-selected", row))
        if row.action == "skip" and self._may_be_unverified(row):
            return Judgement("compare", row, otherwise=self._if_different(row))
        return Judgement("as-selected", row)

    def _is_in_doubt(self, key: str) -> bool:
        """Whether we may have written the key without knowing: it had begun, or it failed,
        and not because somebody else's object was found there."""
        return key in self._begun or self._failed.get(key, _REFUSED) != _REFUSED

    def _may_be_unverified(self, row: Selection) -> bool:
        """Whether what the rule would keep may be our own write, which nobody verified."""
        key, there = row.destination_key, row.destination
        is_named = (self._doubt.of_begun and key in self._begun) or (
            self._doubt.of_failed and self._failed.get(key, _REFUSED) not in _STRANGERS
        )
        if not is_named or there is None or self._began_unix_s is None:
            return False
        is_since_begin = there.last_modified >= self._began_unix_s - IN_DOUBT_S
        return is_since_begin and _has_right_size(row) and not _is_older(there, row.source)

    def _if_different(self, row: Selection, upload: UploadRow | None = None) -> Judgement:
        """Of what may be our own write, when its bytes are not the source's."""
        if not self._doubt.replaces_different or row.destination is None:
            return Judgement("unproved", row, upload=upload)
        fence = Precondition(if_match=row.destination.etag)
        again = replace(row, action="copy", reason="the bytes differ", precondition=fence)
        return Judgement("as-selected", again, upload=upload)

    def _judge_upload(self, row: Selection, upload: UploadRow) -> Judgement:
        is_same = (upload.source_key, upload.source_etag, upload.size_bytes) == (
            row.source.key,
            row.source.etag,
            row.source.size_bytes,
        )
        afresh = Judgement("as-selected", row, upload=upload)
        crc32c = upload.crc32c if is_same else None
        if row.action == "skip":
            # The commit had begun, or the upload was to replace what is there.
            in_doubt = crc32c is not None or self._doubt.replaces_different
            if not (in_doubt and _has_right_size(row)) or _is_older(row.destination, row.source):
                return afresh
            otherwise = self._if_different(row, upload) if self._doubt.of_failed else afresh
            return Judgement("compare", row, upload=upload, crc32c=crc32c, otherwise=otherwise)
        if not is_same:
            return afresh
        goes_on = row.action == "copy" and upload.upload_id is not None
        otherwise = Judgement("continue", row, upload=upload) if goes_on else afresh
        # The commit had begun, or the rule takes for a stranger's what may be ours.
        in_doubt = crc32c is not None or row.action == "refuse"
        if in_doubt and _has_right_size(row):
            return Judgement("compare", row, upload=upload, crc32c=crc32c, otherwise=otherwise)
        return otherwise

    def _judge_ended(self, row: Selection) -> Judgement:
        """A key that has ended: it was copied, or the rule kept what was there before."""
        as_selected = Judgement("as-selected", row)
        if row.action == "skip" and not self._is_since_begin(row.destination):
            return as_selected
        if _is_later_copy(row.source, row.destination):
            return Judgement("finished", row)
        if row.action == "refuse":
            return Judgement("compare", row, otherwise=as_selected)
        if row.action == "skip":
            reason = f"{row.reason}; an earlier epoch may have copied it"
            return Judgement("as-selected", replace(row, reason=reason))
        return as_selected

    def _is_since_begin(self, there: ObjectInfo | None) -> bool:
        """Whether it was written since the first epoch began; stores tell whole seconds."""
        began = self._began_unix_s
        return there is not None and began is not None and there.last_modified >= floor(began)

    def _has_ended(self, key: str, is_last: bool) -> bool:
        """Whether `through` speaks for the key."""
        if is_last or self._through is None or key > self._through:
            return False
        return key not in self._begun and key not in self._failed


def keep_parts(upload: UploadRow, parts: Iterable[PartInfo]) -> dict[int, PartInfo]:
    """Number -> part, of those parts of an upload that need not be sent again.

    A part counts when it has the right length and its checksum is known: without that, the
    whole could not be compared with what was read.
    """
    return {
        part.number: part
        for part in parts
        if part.crc32c is not None
        and part.size_bytes > 0
        and part.size_bytes == upload.length_of(part.number)
    }


def _is_there(done: DoneRow, row: Selection) -> bool:
    return row.destination is not None and row.destination.etag == done.etag


def _has_right_size(row: Selection) -> bool:
    return row.destination is not None and row.destination.size_bytes == row.source.size_bytes


def _is_older(there: ObjectInfo | None, source: ObjectInfo) -> bool:
    """Whether the source was written since: then it cannot tell what its copy had to be."""
    return there is not None and there.last_modified < source.last_modified


def _is_later_copy(source: ObjectInfo, there: ObjectInfo | None) -> bool:
    """Whether what was copied to there, once, is that version of the source: by checksums
    where both listings tell them, else by times that leave no doubt."""
    if there is None:
        return False
    if source.crc32c is not None and there.crc32c is not None:
        return source.crc32c == there.crc32c
    return source.last_modified + IN_DOUBT_S <= there.last_modified
