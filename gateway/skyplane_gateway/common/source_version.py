"""What a copy was made of: the version of its source, kept in the copy's user metadata.

The time of a write at the destination is no identity of a source. Where the two listings have no
checksum in common, this text tells whether a copy is one of the source's present version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from skyplane_gateway.common.encoded_words import to_header
from skyplane_gateway.common.mtime import MTIME, mtime_ns_of
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, is_time_pin

#: The name in the user metadata: letters only, since Azure encodes others and proxies drop some.
NAME: Final = "skyplanesource"
#: S3 holds so many bytes of user metadata. Where the mark has no room, the copy has none.
_MOST_BYTES: Final = 2048

#: Between the ETag of a file and the time of its inode.
_INODE: Final = "@"

#: Name and text of one row of user metadata.
Mark = tuple[str, str]


def version_of(kind: str, source: ObjectInfo) -> str:
    """The version of an object of a store of that kind: its ETag or generation, of a file its
    time, which its copies have as `mtime` anyway."""
    if kind == "file":
        return f"{MTIME}:{source.etag.rsplit('-', 2)[0]}"
    return f"{kind}:{source.etag.strip(chr(34))}"


def identity_of(kind: str, info: ObjectInfo) -> str:
    """The version of an object, as exactly as listings of its store tell it; for manifests.

    Empty where only time and size are known, which prove nothing. Of a file also the time of its
    inode: a tool that writes in place can set the other one.
    """
    if kind == "file":
        return f"{info.etag}{_INODE}{info.stored_unix_s or 0.0:.6f}"
    return "" if is_time_pin(info.etag) else info.etag


def etag_of(identity: str) -> str:
    """The ETag in an identity."""
    return identity.partition(_INODE)[0]


def time_and_size_of(identity: str) -> str:
    """Of a file, by its identity or its ETag. Some file systems give it another inode at each
    mount, and chmod changes the time of the inode: then only the bytes tell."""
    return etag_of(identity).rpartition("-")[0]


def recorded_source(attributes: ObjectAttributes | None) -> str:
    """The version that a copy was made of; empty where its metadata does not tell."""
    mark = dict(attributes.metadata).get(NAME) if attributes is not None else None
    if mark is not None:
        return mark
    mtime_ns = mtime_ns_of(attributes)
    return "" if mtime_ns is None else f"{MTIME}:{mtime_ns}"


def marked(attributes: ObjectAttributes, mark: Mark | None) -> ObjectAttributes:
    """The attributes of a copy with its mark in the place of its source's own.

    A time that is there already as `mtime` stays.
    """
    if mark is None and not attributes.metadata:
        return attributes
    rows = {name: text for name, text in attributes.metadata if name != NAME}
    if mark is not None and mark[0] == NAME:
        sizes = (len(to_header(text)) for row in (*rows.items(), mark) for text in row)
        rows |= [mark] if sum(sizes) <= _MOST_BYTES else []
    elif mark is not None and mtime_ns_of(attributes) is None:
        rows |= [mark]
    return replace(attributes, metadata=tuple(sorted(rows.items())))
