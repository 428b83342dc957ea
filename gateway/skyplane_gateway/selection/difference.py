"""Whether a conflict rule replaces an object: by both listings, else by a look at one end.

What is equal was shown to be equal: by a checksum, by what a copy says that it was made of, or by
times that leave no doubt. Where the listings show neither, the verdict is a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from skyplane_gateway.common.job_options import ConflictRule
from skyplane_gateway.common.mtime import MTIME, mtime_ns_of
from skyplane_gateway.common.objects import ObjectInfo, RecordedCopy
from skyplane_gateway.common.source_version import (
    identity_of,
    recorded_source,
    time_and_size_of,
    version_of,
)

#: A source whose time is so near the write of its copy may be newer than what the copy was made
#: of. It covers the time from a read to its commit, differences of clocks, and whole seconds.
MARGIN_S: Final = 120.0

#: `source`, `destination`: HEAD of that object. `checksums`: the CRC32C of both, by a HEAD or by
#: reading them; `source-checksum`, `destination-checksum`: of one.
QuestionKind = Literal[
    "source", "destination", "checksums", "source-checksum", "destination-checksum"
]

#: Times of files are floating-point numbers here.
_TIME_ERROR_S: Final = 2e-6
#: Steps in which file systems store times, where they are coarser than a microsecond.
_TIME_STEPS_S: Final = (2.0, 1.0, 0.01)
#: Stores round the times of writes to milliseconds.
_STORED_ERROR_S: Final = 1e-3
#: `replace-if-newer` compares sizes where the times differ by less.
_SAME_TIME_S: Final = 1.0

#: An MD5, or that of the parts' MD5s with their number; or the checksum that versitygw names.
_CHECKSUM: Final = re.compile(r"[0-9a-f]{32}(-[0-9]+)?|(CRC|SHA)[0-9A-Z]+-[\w+/=]+(-[0-9]+)?")
#: What the listing of a copy of a file says that it was made of; see `made_of`.
_LISTED_MTIME: Final = re.compile(rf"{MTIME}:(-?[0-9]{{1,21}})")
#: Stores whose MD5 is that of the bytes; Azure keeps what a client claimed.
_HASHING: Final = frozenset({"s3", "gcs"})


@dataclass(frozen=True, slots=True)
class Ends:
    """Kinds of both stores, and by how much the destination's clock is ahead of the source's.

    `uses_md5`: what both state as an MD5 counts. `source_name`: see `StoreSpec.name`.
    `is_trusted`: the manifest of the destination stands for its listing.
    """

    source_kind: str = ""
    destination_kind: str = ""
    ahead_s: float = 0.0
    uses_md5: bool = True
    source_name: str = ""
    is_trusted: bool = False


@dataclass(frozen=True, slots=True)
class ComparisonAnswer:
    """The objects of a question as they are now; None for one that is gone or was not asked for."""

    source: ObjectInfo | None = None
    destination: ObjectInfo | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the object is replaced, and why; with a `question` that is not known yet.

    `is_proved`: both ends were compared by a checksum; `crc32c` is theirs, if it is known.
    `is_edited`: the object at the destination is not the copy that the manifest has a row of.
    """

    replaces: bool
    reason: str
    question: QuestionKind | None = None
    is_proved: bool = False
    crc32c: int | None = None
    is_edited: bool = False


_EQUAL: Final = Verdict(False, "sizes and checksums are equal", is_proved=True)
_RECORDED: Final = Verdict(False, "source and copy are as the manifest has them")
_EDITED: Final = Verdict(True, "it was changed at the destination", is_edited=True)
_LATER: Final = Verdict(False, "the sizes are equal and the copy was written later")


def _equal(crc32c: int | None) -> Verdict:
    return replace(_EQUAL, crc32c=crc32c)


def compare(
    conflict: ConflictRule,
    ends: Ends,
    source: ObjectInfo,
    there: ObjectInfo,
    answer: ComparisonAnswer | None = None,
) -> Verdict:
    """The verdict about an object that both listings have.

    Args:
        answer: to the question that the same call without it has returned.
    """
    if conflict == "replace":
        return Verdict(True, "it replaces the object at the destination")
    if conflict == "replace-if-newer":
        return _newer(ends, source, there, answer)
    if conflict == "replace-if-different" and there.recorded is not None:
        known = _by_manifest(ends, source, there, there.recorded, answer)
        if known is not None:
            return known
    if source.size_bytes != there.size_bytes:
        return Verdict(True, "the sizes differ")
    if conflict == "replace-if-size-differs":
        return Verdict(False, "the sizes are equal")
    known = _by_checksums(ends, source, there)
    if known is not None:
        return known
    if conflict == "replace-if-checksum-differs":
        return _checksums(source, there, answer)
    return _different(ends, source, there, answer)


def _by_manifest(
    ends: Ends,
    source: ObjectInfo,
    there: ObjectInfo,
    copy: RecordedCopy,
    answer: ComparisonAnswer | None,
) -> Verdict | None:
    """By the row of the copy; None where it was made of another object, unless only the time of a
    file would tell the two apart."""
    version, is_file = identity_of(ends.source_kind, source), ends.source_kind == "file"
    if (copy.store, copy.key) != (ends.source_name, source.key):
        is_alike = source.size_bytes == there.size_bytes and copy.state != "changed"
        is_doubtful = is_alike and ends.destination_kind == "file" and version != copy.version
        if copy.crc32c is None or not is_doubtful:
            return None
        return _touched(copy, answer, of_source=True)
    is_same = version == copy.version
    is_touched = is_file and time_and_size_of(version) == time_and_size_of(copy.version)
    if is_same and copy.state == "same":
        return _RECORDED
    if source.size_bytes == there.size_bytes:
        known = _by_checksums(ends, source, there)
        if known is not None and not known.replaces:
            return known
        if copy.crc32c is not None and (is_same or is_touched) and copy.state != "changed":
            return _touched(copy, answer, of_source=not is_same)
    if copy.state != "same":
        return _EDITED
    return Verdict(True, "the source has changed since it was copied")


def _touched(copy: RecordedCopy, answer: ComparisonAnswer | None, *, of_source: bool) -> Verdict:
    """The verdict about a file whose bytes alone tell whether they were changed."""
    kind: QuestionKind = "destination-checksum"
    if of_source:
        kind = "checksums" if copy.state == "touched" else "source-checksum"
    if answer is None:
        return Verdict(True, "only the bytes tell", kind)
    there = answer.destination
    if copy.state == "touched" and (there is None or there.crc32c != copy.crc32c):
        return _EDITED
    if of_source and (answer.source is None or answer.source.crc32c != copy.crc32c):
        return Verdict(True, "the source has other bytes, although times and sizes are equal")
    return _equal(copy.crc32c)


def _by_checksums(ends: Ends, source: ObjectInfo, there: ObjectInfo) -> Verdict | None:
    """By checksums of the whole that both listings have.

    ETags of S3 that differ prove nothing: they depend on encryption and on parts.
    """
    if source.crc32c is not None and there.crc32c is not None:
        is_equal = source.crc32c == there.crc32c
        return _equal(source.crc32c) if is_equal else Verdict(True, "the checksums differ")
    if not ends.uses_md5 or not {ends.source_kind, ends.destination_kind} <= _HASHING:
        return None
    here, theirs = source.md5 or source.etag.strip('"'), there.md5 or there.etag.strip('"')
    return _EQUAL if here == theirs and _CHECKSUM.fullmatch(here) else None


def _checksums(source: ObjectInfo, there: ObjectInfo, answer: ComparisonAnswer | None) -> Verdict:
    if answer is None:
        return Verdict(True, "the checksums are not known", "checksums")
    here, theirs = answer.source, answer.destination
    if here is None or theirs is None or (here.etag, theirs.etag) != (source.etag, there.etag):
        return Verdict(True, "it was changed while it was compared")
    if here.crc32c is None or here.crc32c != theirs.crc32c:
        return Verdict(True, "the checksums differ")
    return _equal(here.crc32c)


def _newer(
    ends: Ends, source: ObjectInfo, there: ObjectInfo, answer: ComparisonAnswer | None
) -> Verdict:
    """As `rclone --update`."""
    ahead_s = source.last_modified - there.last_modified
    has_own_time = ends.destination_kind == "file" != ends.source_kind
    if ahead_s > 0 and has_own_time:
        answer = answer or _listed(source)
        is_same_size = source.size_bytes == there.size_bytes
        if answer is None and is_same_size and _was_set_later(ends, source, there):
            return _LATER
        if answer is None:
            return Verdict(True, "the source is newer", "source")
        own_s = _own_time_s(answer.source)
        ahead_s = ahead_s if own_s is None else own_s - there.last_modified
    if ahead_s <= -_SAME_TIME_S:
        return Verdict(False, "the destination is newer")
    if ahead_s <= _STORED_ERROR_S:
        is_same = source.size_bytes == there.size_bytes
        reason = "the destination is not older" if is_same else "the times are equal, the sizes not"
        return Verdict(not is_same, reason)
    if source.size_bytes == there.size_bytes:
        known = _by_checksums(ends, source, there)
        if known is not None and not known.replaces:
            return known
    return Verdict(True, "the source is newer")


def _different(
    ends: Ends, source: ObjectInfo, there: ObjectInfo, answer: ComparisonAnswer | None
) -> Verdict:
    if ends.destination_kind == "file":
        return _file_differs(ends, source, there, answer)
    made_of = there.made_of
    if answer is not None:
        found = answer.destination
        is_listed = found is not None and found.etag == there.etag
        made_of = recorded_source(found.attributes) if found is not None and is_listed else ""
    if made_of and made_of.startswith(MTIME) and ends.source_kind != "file":
        made_of = ""  # It came along from a source that was a copy of a file.
    if made_of and made_of == version_of(ends.source_kind, source):
        return Verdict(False, "the copy was made of this version of the source")
    if made_of or answer is not None:
        return Verdict(True, "the copy was made of another version of the source")
    if source.md5 and there.md5 and source.md5 != there.md5:
        return Verdict(True, "the checksums differ")
    written_s = there.last_modified - ends.ahead_s
    if source.written_unix_s < written_s - MARGIN_S:
        return _LATER
    if made_of is not None:
        return Verdict(True, "the source is newer, or about as old as its copy")
    return Verdict(True, "the source is about as old as its copy", "destination")


def _file_differs(
    ends: Ends, source: ObjectInfo, there: ObjectInfo, answer: ComparisonAnswer | None
) -> Verdict:
    """A copy that is a file has its source's time."""
    if _is_time_of(there, source.last_modified):
        return Verdict(False, "sizes and times are equal")
    if ends.source_kind != "file":
        answer = answer or _listed(source)
        if answer is None and _was_set_later(ends, source, there):
            return _LATER
        if answer is None:
            return Verdict(True, "the times differ", "source")
        own_s = _own_time_s(answer.source)
        # A server may list milliseconds and answer in whole seconds.
        stored_s = answer.source.last_modified if answer.source is not None else None
        own_s = stored_s if own_s is None else own_s
        if own_s is not None and _is_time_of(there, own_s):
            return Verdict(False, "sizes and times are equal")
    return Verdict(True, "the times differ")


def _was_set_later(ends: Ends, source: ObjectInfo, there: ObjectInfo) -> bool:
    """Whether a file was made after its source was written, and got an older time.

    A copy gets the time that its source has in its metadata. An edit would show its own time. The
    last change of the inode would tell less: an old file has another owner or name since.
    """
    made_s = there.made_unix_s
    if made_s is None or there.last_modified > source.written_unix_s:
        return False
    return source.written_unix_s < made_s - ends.ahead_s - MARGIN_S


def _own_time_s(source: ObjectInfo | None) -> float | None:
    """The time in an object's metadata in unix seconds."""
    if source is None:
        return None
    listed = _LISTED_MTIME.fullmatch(source.made_of or "")
    mtime_ns = int(listed[1]) if listed else mtime_ns_of(source.attributes)
    return None if mtime_ns is None else mtime_ns / 1e9


def _listed(source: ObjectInfo) -> ComparisonAnswer | None:
    """The answer about a source whose listing has its own time; None for any other."""
    return (
        None
        if source.attributes is None and _own_time_s(source) is None
        else ComparisonAnswer(source)
    )


def _is_time_of(file: ObjectInfo, time_s: float) -> bool:
    """Whether a file has that time, as far as its file system can store it."""
    left_s = time_s - file.last_modified
    if abs(left_s) <= _TIME_ERROR_S:
        return True
    times = (file.last_modified, file.written_unix_s)
    # Where the file was changed later, two times show the steps of its file system.
    has_two = times[1] > times[0]
    return has_two and any(
        0 < left_s < step and all(abs(time - round(time / step) * step) < 1e-6 for time in times)
        for step in _TIME_STEPS_S
    )
