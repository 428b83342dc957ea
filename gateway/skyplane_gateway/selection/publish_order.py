"""Objects that are published last, since readers take them as a sign that all others exist."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from skyplane_gateway.key_patterns import ANY_DEPTH, Match, compiled, expression, matcher
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
        patterns: in addition to `PUBLISHED_LAST`; see `announces`.
        prefix: of the destination.
    """
    return announces(key, (*PUBLISHED_LAST, *patterns), prefix)


def announces(key: str, patterns: tuple[str, ...], prefix: str) -> bool:
    """Whether a pattern matches a destination key or its end after any slash.

    One that begins with a slash has to match the whole key below the prefix.
    """
    anywhere, rooted = _matchers(patterns)
    if anywhere is not None and anywhere(key):
        return True
    return rooted is not None and bool(rooted(key.removeprefix(folder_of(prefix))))


@lru_cache
def _matchers(patterns: tuple[str, ...]) -> tuple[Match | None, Match | None]:
    """Of the patterns that match at any depth, and of those that begin with a slash."""
    rooted = [one for one in patterns if one.startswith("/")]
    others = (ANY_DEPTH + expression(one) for one in patterns if one not in rooted)
    return compiled(others), matcher(rooted)
