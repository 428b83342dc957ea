"""Modification times in user metadata, as rclone writes and reads them.

The name is `mtime`. In S3 the text is seconds since 1970 with up to nine decimals; in Google Cloud
Storage and Azure it is a time of RFC 3339. Here and on the wire it is that of S3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from skyplane_gateway.common.objects import ObjectAttributes

#: The option of a file store that reads give the file's time in their metadata.
KEPT_TIME: Final = ("mtime", "kept")

#: The name in the user metadata.
MTIME: Final = "mtime"
_NS: Final = 1_000_000_000
_SECONDS: Final = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?")
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII
)

Pairs = Iterable[tuple[str, str]]


def with_mtime(attributes: ObjectAttributes, mtime_ns: int) -> ObjectAttributes:
    """The attributes with a modification time; one that is there already stays."""
    if any(name == MTIME for name, _ in attributes.metadata):
        return attributes
    pairs = sorted([*attributes.metadata, (MTIME, _to_seconds(mtime_ns))])
    return replace(attributes, metadata=tuple(pairs))


def mtime_ns_of(attributes: ObjectAttributes | None) -> int | None:
    """The modification time in nanoseconds since 1970; None for none."""
    text = dict(attributes.metadata).get(MTIME) if attributes is not None else None
    return None if text is None else _from_seconds(text)


def dated(metadata: Pairs) -> dict[str, str]:
    """The metadata as Google Cloud Storage and Azure keep it.

    A text that is no time, or not in the form of this module, stays as it is.
    """
    found = dict(metadata)
    if MTIME in found:
        mtime_ns = _from_seconds(found[MTIME])
        if mtime_ns is not None and _to_seconds(mtime_ns) == found[MTIME]:
            found[MTIME] = _to_rfc_3339(mtime_ns) or found[MTIME]
    return found


def undated(metadata: Pairs) -> tuple[tuple[str, str], ...]:
    """The sorted metadata in the form of this module, from Google Cloud Storage or Azure."""
    found = dict(metadata)
    if MTIME in found:
        mtime_ns = _from_rfc_3339(found[MTIME])
        if mtime_ns is not None:
            found[MTIME] = _to_seconds(mtime_ns)
    return tuple(sorted(found.items()))


def _to_seconds(mtime_ns: int) -> str:
    seconds, rest = divmod(abs(mtime_ns), _NS)
    return f"{'-' if mtime_ns < 0 else ''}{seconds}{_fraction(rest)}"


def _from_seconds(text: str) -> int | None:
    found = _SECONDS.fullmatch(text) if text.isascii() else None
    if found is None:
        return None
    mtime_ns = int(found[2]) * _NS + int((found[3] or "").ljust(9, "0"))
    return -mtime_ns if found[1] else mtime_ns


def _to_rfc_3339(mtime_ns: int) -> str | None:
    """None for a time after the year 9999 or before the year 1."""
    seconds, rest = divmod(mtime_ns, _NS)
    try:
        day = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):
        return None
    return f"{day.replace(tzinfo=None).isoformat()}{_fraction(rest)}Z"


def _from_rfc_3339(text: str) -> int | None:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        return None
    try:
        seconds = datetime.fromisoformat(found[1] + found[3]).timestamp()
    except ValueError:
        return None
    return int(seconds) * _NS + int((found[2] or "").ljust(9, "0"))


def _fraction(rest_ns: int) -> str:
    return f".{rest_ns:09}".rstrip("0") if rest_ns else ""
