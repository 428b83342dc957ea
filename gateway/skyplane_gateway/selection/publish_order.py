"""Objects that are published last, since readers take them as a sign that all others exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from skyplane_gateway.common.key_patterns import ANY_DEPTH, Match, compiled, expression
from skyplane_gateway.selection.key_mapping import folder_of

#: Iceberg's readers start from metadata files. Its manifests are not held back, since that
#: would hold millions of rows in memory.
PUBLISHED_LAST = (
    "_SUCCESS",
    "_delta_log/*",
    "metadata/*.metadata.json",
    "metadata/*.metadata.json.gz",
    "metadata/version-hint.text",
)


def is_published_last(key: str, patterns: Iterable[str] = (), prefix: str = "") -> bool:
    """Whether a destination key is published after the others.

    Args:
        patterns: in addition to `PUBLISHED_LAST`, matched against the whole key or its end after
            any slash; one that begins with a slash, against the whole key below the prefix.
        prefix: of the destination.
    """
    match = _matcher((*PUBLISHED_LAST, *patterns), folder_of(prefix))
    return match is not None and bool(match(key))


@lru_cache
def _matcher(patterns: tuple[str, ...], folder: str) -> Match | None:
    return compiled(expression_of_last(one, folder) for one in patterns)


def expression_of_last(pattern: str, folder: str) -> str:
    """The regular expression of the destination keys below a folder that a pattern matches."""
    start = re.escape(folder) if pattern.startswith("/") else ANY_DEPTH
    return start + expression(pattern)
