"""Patterns of keys: globs in which a slash at either end has a meaning, as in rclone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Final

#: Of a name; true where a pattern matches the whole of it.
Match = Callable[[str], object]

#: What `translate` makes of a set without a character, such as `[b-a]`.
_NEVER: Final = "(?!)"

#: Any folders, or none.
ANY_DEPTH: Final = "(?s:.*/)?"


def expression(pattern: str) -> str:
    """The regular expression of a pattern, which has to match a whole name.

    `*` matches any text, slashes too. A slash at the begin is the root: `/x` is `x`. A slash at
    the end is a folder and stands for all below it: `tmp/` is that at any depth, `/tmp/` is at
    the root, and `/` alone is everything. A key that begins with a slash is `[/]x`, so `//x` has
    no match.
    """
    if pattern in ("", "/"):
        return translate("*") if pattern else _NEVER
    glob = pattern.removeprefix("/")
    if glob.startswith("/"):
        return _NEVER
    is_folder, is_rooted = glob.endswith("/"), glob != pattern
    depth = ANY_DEPTH if is_folder and not is_rooted else ""
    return depth + translate(f"{glob}*" if is_folder else glob)


def can_match(pattern: str) -> bool:
    """Whether there are names that the pattern matches."""
    return _NEVER not in expression(pattern)


def literal_start(pattern: str) -> str:
    """What every name begins with that the pattern matches; empty where that is not known."""
    glob = pattern.removeprefix("/")
    is_any_depth = glob == pattern and pattern.endswith("/")
    return "" if is_any_depth else re.split(r"[*?[]", glob, maxsplit=1)[0]


def matches_below(pattern: str) -> bool:
    """Whether a pattern that matches `a/` matches every name that begins so."""
    return pattern.endswith(("*", "/"))


def matcher(patterns: Iterable[str]) -> Match | None:
    """Whether one of the patterns matches a name; None where there are no patterns."""
    return compiled(expression(pattern) for pattern in patterns)


def compiled(expressions: Iterable[str]) -> Match | None:
    """Whether one of the regular expressions matches; None where there are none."""
    alternatives = "|".join(expressions)
    return re.compile(alternatives).match if alternatives else None
