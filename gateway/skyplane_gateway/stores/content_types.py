"""The content type that a file's name stands for, as `aws s3 cp` guesses it.

Python's own table alone: the system's files, which differ between machines, would give one
name two types at two gateways. As in the AWS CLI a compressed file has the type of what is
in it (`a.csv.gz` is `text/csv`), and no content encoding, so that readers do not unpack it.
"""

from __future__ import annotations

import mimetypes
from typing import Final

#: The option of a file store that is read with guessed content types.
GUESSED_TYPE: Final = ("content_type", "guessed")

_TYPES: Final = mimetypes.MimeTypes()


def guessed_type(key: str) -> str | None:
    """None where the name says nothing."""
    # With a slash before it no key is taken for a URL with a scheme of its own.
    return _TYPES.guess_type(f"/{key}")[0]
