"""Attributes of files: a type that is guessed from the name, as by `aws s3 cp`; what is lost.

Only Python's own table is used: the system's tables differ between machines. As in the AWS CLI a
compressed file has the type of its content (`a.csv.gz` is `text/csv`) and no content encoding, so
that readers do not decompress it.
"""

from __future__ import annotations

import mimetypes
from typing import Final

from skyplane_gateway.common.mtime import mtime_ns_of
from skyplane_gateway.common.objects import HEADERS, ObjectAttributes
from skyplane_gateway.common.source_version import marked

#: The option of a file store for guessed content types.
GUESSED_TYPE: Final = ("content_type", "guessed")

#: Types that stores give to objects without one.
_DEFAULT_TYPES: Final = ("application/octet-stream", "binary/octet-stream")
_TYPES: Final = mimetypes.MimeTypes()


def guessed_type(key: str) -> str | None:
    """None where the name does not tell."""
    # The slash keeps a key with a colon from being parsed as a URL.
    return _TYPES.guess_type(f"/{key}")[0]


def lost_attributes(attributes: ObjectAttributes, key: str) -> tuple[str, ...]:
    """The names (see `ObjectInfo.not_carried`) of headers and user metadata that a file lacks.

    The modification time of a file keeps `mtime`, and its name keeps the usual type.
    """
    content_type = (attributes.content_type or "").lower()
    is_usual = content_type in ("", *_DEFAULT_TYPES, guessed_type(key))
    # The time of a file keeps it, and so does a folder that it is one.
    kept = (mtime_ns_of(attributes) is not None) + (key.endswith("/") and attributes.marks_folder)
    found = {header: getattr(attributes, attribute) for attribute, header in HEADERS.items()}
    # A key with a slash at its end becomes a folder.
    found["content-type"] = not (is_usual or key.endswith("/"))
    found["user-metadata"] = len(marked(attributes, None).metadata) > kept
    return tuple(name for name, is_there in found.items() if is_there)
