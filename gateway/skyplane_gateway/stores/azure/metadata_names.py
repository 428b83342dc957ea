"""Writes metadata names of other stores as Azure's, which are C# identifiers, and back.

A character that Azure does not allow, such as a hyphen, becomes its UTF-8 bytes in hexadecimal,
each between underscores: `with-dash` is `with_2d_dash`. So does a first digit, and an underscore
that would otherwise look like the begin of such a code.
"""

from __future__ import annotations

import re
from typing import Final

from skyplane_gateway.common.encoded_words import without_codes

_PLAIN: Final = re.compile(r"[a-z0-9_]")
_CODE_REST: Final = re.compile(r"[0-9a-f]{2}_")


def to_azure(name: str) -> str:
    """The name as Azure keeps it; `from_azure` gives the name back, in lower case."""
    written = ""
    # From the end, since what follows an underscore decides whether it looks like a code.
    for position, character in reversed(list(enumerate(name.lower()))):
        is_plain = _PLAIN.fullmatch(character) is not None
        is_first_digit = position == 0 and character.isdigit()
        is_like_code = character == "_" and _CODE_REST.match(written) is not None
        if is_plain and not is_first_digit and not is_like_code:
            written = character + written
        else:
            written = "".join(f"_{byte:02x}_" for byte in character.encode()) + written
    return written


def from_azure(name: str) -> str:
    """The name that `to_azure` was given; in lower case, as all stores give names."""
    # Names of other programs may look like codes by chance.
    return without_codes(name.lower())
