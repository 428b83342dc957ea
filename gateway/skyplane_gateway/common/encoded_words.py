"""Text that a header of HTTP cannot hold, as an encoded word of RFC 2047, and back.

S3 returns such user metadata in this form (Amazon S3 User Guide, "Working with object metadata",
2026-11). In names a character becomes its UTF-8 bytes in hexadecimal, each between underscores, as
for Azure. What needs no encoding stays as it is, in both directions.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final

#: One encoded word, or several.
_WORDS: Final = re.compile(r"=\?[\w-]+\?[bBqQ]\?[^?\s]*\?=(?:\s+=\?[\w-]+\?[bBqQ]\?[^?\s]*\?=)*")
#: What a header's name may consist of (RFC 9110).
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CODED: Final = re.compile(r"[^A-Za-z0-9.-]")
_CODE: Final = re.compile(r"_([0-9a-f]{2})_")


def fits(text: str) -> bool:
    """Whether a header holds the text as it is, and it is read as such."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    return is_plain and from_header(text) == text


def to_header(text: str) -> str:
    """The text as a header holds it; `from_header` gives it back."""
    return text if fits(text) else f"=?UTF-8?B?{b64encode(text.encode()).decode()}?="


def from_header(found: str) -> str:
    """The text of a header's value, whose bytes the client read as Latin-1."""
    text = utf8(found)
    decoded = _decoded(text)
    return text if decoded == text or fits(decoded) else decoded


def fits_name(name: str) -> bool:
    """As `fits`, for the name of a header."""
    return _NAME.fullmatch(name) is not None and from_header_name(name) == name


def to_header_name(name: str) -> str:
    """The name as a header has it; `from_header_name` gives it back."""
    if fits_name(name):
        return name
    return _CODED.sub(lambda one: "".join(f"_{byte:02x}_" for byte in one[0].encode()), name)


def from_header_name(found: str) -> str:
    decoded = without_codes(found)
    return found if decoded == found or fits_name(decoded) else decoded


def without_codes(name: str) -> str:
    """The name with its codes as characters; the name itself where they are no UTF-8."""
    raw, position = bytearray(), 0
    for code in _CODE.finditer(name):
        raw += name[position : code.start()].encode() + bytes.fromhex(code[1])
        position = code.end()
    try:
        return (raw + name[position:].encode()).decode()
    except UnicodeDecodeError:
        return name


def utf8(text: str) -> str:
    """The text of a header in UTF-8, which clients read as Latin-1."""
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def _decoded(text: str) -> str:
    """What encoded words say; the text itself where it is something else."""
    if not _WORDS.fullmatch(text):
        return text
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, ValueError):
        return text
