"""Objects that announce others, and so are written after everything else."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

#: Readers take the presence of these as "all else is here". Of Iceberg's `metadata/`
#: only what readers start from: manifests announce nothing until a metadata file names
#: them, and holding them back would hold millions of rows in memory.
PUBLISHED_LAST = (
    "_SUCCESS",
    "_delta_log/*",
    "metadata/*.metadata.json",
    "metadata/*.metadata.json.gz",
    "metadata/version-hint.text",
)


def is_published_last(key: str, patterns: Iterable[str] = ()) -> bool:
    """Whether `key` waits for the others.

    Args:
        key: the key at the destination.
        patterns: globs beside `PUBLISHED_LAST`, matched against the whole key or its
            end from any slash; `*` also crosses slashes.
    """
    return any(
        fnmatchcase(key, pattern) or fnmatchcase(key, f"*/{pattern}")
        for pattern in (*PUBLISHED_LAST, *patterns)
    )
