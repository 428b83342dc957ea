"""Objects that are published last, since readers take them as a sign that all others exist."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

#: Iceberg's readers start from metadata files. Its manifests are not held back, since that
#: would hold millions of rows in memory.
PUBLISHED_LAST = (
    "_SUCCESS",
    "_delta_log/*",
    "metadata/*.metadata.json",
    "metadata/*.metadata.json.gz",
    "metadata/version-hint.text",
)


def is_published_last(key: str, patterns: Iterable[str] = ()) -> bool:
    """Whether a destination key is published after the others.

    Args:
        patterns: globs in addition to `PUBLISHED_LAST`, matched against the whole key or its
            end after any slash; `*` also matches slashes.
    """
    return any(
        fnmatchcase(key, pattern) or fnmatchcase(key, f"*/{pattern}")
        for pattern in (*PUBLISHED_LAST, *patterns)
    )
