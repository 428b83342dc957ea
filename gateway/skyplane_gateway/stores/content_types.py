"""Guesses the content type from a file's name, as `aws s3 cp` does.

Only Python's own table is used: the system's tables differ between machines. As in the AWS CLI a
compressed file has the type of its content (`a.csv.gz` is `text/csv`) and no content encoding, so
that readers do not decompress it.
"""

from __future__ import annotations

import mimetypes
from typing import Final

#: The option of a file store for guessed content types.
GUESSED_TYPE: Final = ("content_type", "guessed")

_TYPES: Final = mimetypes.MimeTypes()


def guessed_type(key: str) -> str | None:
    """None where the name does not tell."""
    # The slash keeps a key with a colon from being parsed as a URL.
    return _TYPES.guess_type(f"/{key}")[0]
