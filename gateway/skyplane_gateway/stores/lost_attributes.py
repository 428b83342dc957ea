"""What a store without attributes, that is a file system, does not keep of an object."""

from __future__ import annotations

from typing import Final

from skyplane_gateway.common.mtime import mtime_ns_of
from skyplane_gateway.common.objects import HEADERS, ObjectAttributes
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores.content_types import guessed_type

#: Types that stores give to objects without one.
_DEFAULT_TYPES: Final = ("application/octet-stream", "binary/octet-stream")


def lost_attributes(attributes: ObjectAttributes, key: str) -> tuple[str, ...]:
    """The names (see `ObjectInfo.not_carried`) of headers and user metadata that `key` lacks.

    The modification time of a file keeps `mtime`, and its name keeps the usual type.
    """
    content_type = (attributes.content_type or "").lower()
    is_usual = content_type in ("", *_DEFAULT_TYPES, guessed_type(key))
    # The time of a file keeps it, and so does a folder that it is one.
    kept = (mtime_ns_of(attributes) is not None) + (key.endswith("/") and attributes.marks_folder)
    found = {theirs: getattr(attributes, ours) for ours, theirs in HEADERS.items()}
    # A key with a slash at its end becomes a folder.
    found["content-type"] = not (is_usual or key.endswith("/"))
    found["user-metadata"] = len(marked(attributes, None).metadata) > kept
    return tuple(name for name, is_there in found.items() if is_there)
