"""Escapes names that a store cannot hold, so that the original can be read back from them.

The quote is the character U+201B, which hardly any key has. A character that the store cannot hold
becomes the quote and two hexadecimal digits, such as 5C for a backslash. A quote in a name is
doubled, also where nothing else is escaped. So no two names become one, and `unescape_name` finds
the original.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from skyplane_gateway.common.errors import InvalidKey
from skyplane_gateway.stores.key_rules import check_destination_key
from skyplane_gateway.stores.local.paths import TEMPORARY

QUOTE: Final = "\N{SINGLE HIGH-REVERSED-9 QUOTATION MARK}"

_ESCAPED: Final = re.compile(f"{QUOTE}(?:{QUOTE}|([0-9A-F]{{2}}))")


def escape_name(kind: str, folder: str, name: str, size_bytes: int) -> str:
    """The name that an object gets in `folder` (empty, or with a slash at its end).

    The name itself where a store of that kind can hold it and it has no quote. What no escape
    helps, such as a name that is too long, stays as it is.
    """
    quoted = name.replace(QUOTE, QUOTE * 2)
    if _fits(kind, folder + quoted, size_bytes):
        return quoted
    escaped = "/".join(_escape_segment(kind, segment) for segment in quoted.split("/"))
    if kind == "file":
        escaped = _escape_slashes(escaped, holds_bytes=size_bytes > 0)
    if _fits(kind, folder + escaped, size_bytes):
        return escaped
    # The name begins with a folder that the store or this project keeps for itself.
    if escaped.startswith("."):
        escaped = _hex(".") + escaped[1:]
    return escaped if _fits(kind, folder + escaped, size_bytes) else quoted


def unescape_name(name: str) -> str:
    """The name that `escape_name` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else QUOTE, name)


def _fits(kind: str, key: str, size_bytes: int) -> bool:
    try:
        check_destination_key(kind, key, size_bytes)
    except InvalidKey:
        return False
    return True


def _escape_segment(kind: str, segment: str) -> str:
    if kind == "file" and segment.startswith(TEMPORARY):
        return _hex(segment[0]) + segment[1:]
    if segment in (".", ".."):
        return "".join(map(_hex, segment))
    stem = segment.rstrip(".") if kind == "azure" else segment
    dots = segment[len(stem) :]  # Azure drops dots at the end of a segment.
    made = "".join(_hex(one) if _is_illegal(kind, one) else one for one in stem)
    return made + "".join(map(_hex, dots))


def _is_illegal(kind: str, character: str) -> bool:
    if kind == "file":
        return character == "\0"
    return character == "\\" or character < " " or character == "\x7f"


def _escape_slashes(name: str, *, holds_bytes: bool) -> str:
    """Escape slashes beside an empty segment; the last slash only for an object with bytes."""
    # A folder's mark keeps its last slash, unless the slash ends an empty segment.
    has_mark = not holds_bytes and name.endswith("/") and name[-2:-1] not in ("", "/")
    end = "/" if has_mark else ""
    segments = name.removesuffix(end).split("/")
    made = segments[0]
    for before, segment in pairwise(segments):
        made += ("/" if before and segment else _hex("/")) + segment
    return made + end


def _hex(character: str) -> str:
    return f"{QUOTE}{ord(character):02X}"
